"""Whether what was sent arrives: the kernel knows it long before a connection ends."""

import fcntl
import socket
import struct
import termios

MIN_RETRANSMITS = 2
"""In a row without a word from the other end: one packet may be lost."""

_TCP_INFO = getattr(socket, "TCP_INFO", None)  # elsewhere than on Linux nothing is known
_RETRANSMITS, _UNACKED, _SIZE = 2, slice(24, 28), 28
"""Of `struct tcp_info`: tcpi_retransmits, tcpi_unacked."""


def is_lost(connection: socket.socket) -> bool:
    """Whether the other end acknowledges nothing of what is sent to it again and again. One that is there and reads nothing does."""
    if _TCP_INFO is None:
        return False
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
    return info[_RETRANSMITS] >= MIN_RETRANSMITS and any(info[_UNACKED])


def num_unacknowledged(connection: socket.socket) -> int:
    """Bytes that were handed to the kernel, which the other end has not acknowledged."""
    (number,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(number)
