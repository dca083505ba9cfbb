"""EngineLink: the threads and queues between an engine process's sockets and its main loop."""

import queue
import threading

from stoker_engine.addresses import SocketAddresses
from stoker_engine.config import EngineConfig, seconds
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.core.handshake import HandshakeLink
from stoker_engine.core.input_thread import ClientConnected, ClientLost, EngineInput, InputThread
from stoker_engine.core.output_thread import OutputThread
from stoker_engine.core.pulse import EnginePulse
from stoker_engine.errors import ConfigError
from stoker_engine.protocol import engine_identity, new_incarnation


class EngineLink:
    """Made before the engine, so that the api hears of it while it loads."""

    def __init__(self, config: EngineConfig) -> None:
        self.addresses = SocketAddresses(config.socket_dir)
        if self.addresses.directory.exists() and not self.addresses.directory.is_dir():
            raise ConfigError(f"--socket-dir: {config.socket_dir} is not a directory")
        self.identity = engine_identity(config.engine_index, new_incarnation())
        self.pulse = EnginePulse()
        self.inputs: queue.SimpleQueue[EngineInput] = queue.SimpleQueue()
        self.output = OutputThread(self.addresses.output, self.identity, self._give_up)
        self.handshake = HandshakeLink(
            self.addresses.handshake, self.identity, self.pulse, self, max_silence_seconds=seconds(config.lifecycle.engine_hang_timeout)
        )
        self._input: InputThread | None = None
        self._client: bytes | None = None
        self._lock = threading.Lock()
        self.handshake.start()

    def start_io(self, core: EngineCore) -> None:
        self.output.start()
        with self._lock:
            self._input = InputThread(self.addresses.input, self.identity, core, self.inputs.put)
            self._input.start()
            self._input.set_client(self._client)

    def client_connected(self, client_incarnation: bytes) -> None:
        with self._lock:
            self._set_client(client_incarnation)

    def client_lost(self) -> None:
        with self._lock:
            self._set_client(None)

    def close(self) -> None:
        """Flushes the outputs and ends the threads, each wait bounded."""
        if self._input is not None:
            self._input.close()
            self.output.close()
        self.handshake.close()

    def _give_up(self, client: bytes, reason: str) -> None:
        """From the output thread: this client's outputs are lost. Its requests end, and the link begins anew, so that it learns of that."""
        with self._lock:
            if client != self._client:
                return
            self._set_client(None)
        self.handshake.greet_anew(reason)

    def _set_client(self, client_incarnation: bytes | None) -> None:
        """The loop is told in the order in which the threads are."""
        self.inputs.put(ClientLost() if client_incarnation is None else ClientConnected(client_incarnation))
        self._client = client_incarnation
        self.output.set_client(client_incarnation)
        if self._input is not None:
            self._input.set_client(client_incarnation)
