"""Waker: wakes a thread that waits in a poll."""

import socket


class Waker:
    """`wake` may be called from any thread; the rest belongs to the woken one, which polls `fileno`."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self.fileno = self._receiver.fileno()

    def wake(self) -> None:
        try:
            self._sender.send(b"\0")
        except OSError:
            return  # closed: there is no thread to wake; or full: it is going to wake

    def drain(self) -> None:
        """Takes the wakes so far."""
        try:
            while self._receiver.recv(4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()
