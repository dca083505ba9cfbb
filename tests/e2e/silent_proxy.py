"""A TCP proxy that can go silent, or cut what exists; new connections work."""

import contextlib
import socket
import threading
from collections.abc import Iterator

CHUNK = 65536


class SilentProxy:
    """Listens on 127.0.0.1."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._epoch = 0
        self.num_accepted = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def silence(self) -> None:
        """Nothing more of the present connections, in either direction, and no end of them."""
        self._epoch += 1

    def cut(self) -> None:
        """Ends the present connections."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for end in self._open:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                self.num_accepted += 1
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink, self._epoch), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, epoch: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if epoch == self._epoch:
                    sink.sendall(data)
            if epoch == self._epoch:
                sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def silent_proxy(host: str, port: int) -> Iterator[SilentProxy]:
    proxy = SilentProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
