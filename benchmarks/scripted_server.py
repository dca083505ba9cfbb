"""The real api process before FakeEngineCores: engines come and go behind it, each with the pace that a run asks for."""

import http.client
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import msgspec

from processes import Program
from servers import POLL_SECONDS, SERVED_NAME, START_SECONDS, free_port
from stoker_engine.config import ModelConfig
from stoker_engine.settings import to_args
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config
from stoker_gateway.api.config import ApiConfig

MAX_NUM_BATCHED_TOKENS = 8192
OK = 200


@dataclass(slots=True, frozen=True)
class ScriptedServer:
    """An api, for as many streams at once as `max_num_seqs`."""

    port: int
    program: Program
    socket_dir: str
    max_num_seqs: int

    @contextmanager
    def engine(self, script: Script) -> Iterator[int]:
        """The api answers inside the block, by `script`. The engine's process id."""
        config = msgspec.structs.replace(
            fake_engine_config(self.socket_dir), max_num_seqs=self.max_num_seqs, max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS, enable_prefix_caching=False
        )
        with FakeEngineCore(config, script) as engine:
            self._wait_until_ready()
            yield engine.process.pid
        self._wait_until_not_ready()

    def get(self, path: str) -> int:
        """The status of a GET over a connection of its own, as a kubelet's probe."""
        return self._get(path)[0]

    def engine_seconds(self) -> float:
        """What the engine says it took for all requests so far, from each one's arrival to its first token."""
        page = self._get("/metrics")[1]
        return sum(float(value) for value in re.findall(r"^stoker_request_(?:queue|prefill)_time_seconds_sum\S* (\S+)$", page, re.MULTILINE))

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def _wait_until_ready(self) -> None:
        self._wait_until(lambda: self.get("/readyz") == OK, "ready")

    def _wait_until_not_ready(self) -> None:
        """The api knows that the engine is gone: the next one's readiness is not taken for this one's."""
        self._wait_until(lambda: self.get("/readyz") != OK, "aware that the engine is gone")

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Raises RuntimeError with the api's last words where it ends, or is not so in time."""
        deadline = perf_counter() + START_SECONDS
        while perf_counter() < deadline:
            self.program.check_alive()
            try:
                if is_so():
                    return
            except OSError:
                pass  # it does not listen yet
            sleep(POLL_SECONDS)
        raise RuntimeError(f"not {what} within {START_SECONDS:.0f} s:\n{self.program.last_words()}")


@contextmanager
def scripted_server(model_uri: str, max_num_seqs: int) -> Iterator[ScriptedServer]:
    """`stoker-api` with the tokenizer of this model, from start to stop."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        config = ApiConfig(
            model=ModelConfig(uri=model_uri, served_name=SERVED_NAME),
            socket_dir=folder,
            host="127.0.0.1",
            port=free_port(),
            termination_message_path=f"{folder}/api-termination.json",
        )
        program = Program([str(Path(sys.executable).with_name("stoker-api")), *to_args(config)], {}, Path(folder, "log"))
        try:
            yield ScriptedServer(config.port, program, folder, max_num_seqs)
        finally:
            program.stop()
