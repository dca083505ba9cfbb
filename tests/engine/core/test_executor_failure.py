import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stoker_engine.errors import EngineDeadError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import to_args
from stoker_engine.testing import fake_engine_config

# An engine whose worker ends outside a call, after a step of DIE_AT tokens: 1 in the middle of a request, 0 when all are done.
ENGINE = """
import os, sys, threading
from stoker_engine.config import EngineConfig
from stoker_engine.core.run import EngineProcess
from stoker_engine.settings import from_args
from stoker_engine.testing import Script, ScriptedExecutor

class DyingExecutor(ScriptedExecutor):
    def register_failure_callback(self, callback):
        self.die = threading.Thread(target=callback, args=("worker 0 was killed by signal 9",))

    def execute_model(self, scheduler_output):
        result = super().execute_model(scheduler_output)
        if not self.die.is_alive() and scheduler_output.total_num_scheduled_tokens == int(os.environ["DIE_AT"]):
            self.die.start()
            self.die.join()
        return result

config = from_args(EngineConfig, sys.argv[1:], program="engine")
sys.exit(EngineProcess(config, lambda _: DyingExecutor(Script())).run())
"""


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


@pytest.mark.fault("B3")
@pytest.mark.parametrize(("mode", "die_at", "max_tokens"), [({}, "0", 2), ({"async_scheduling": True}, "1", 500)])
async def test_a_worker_that_ends_outside_a_call_ends_the_engine_which_says_why(
    socket_dir: str, client: AsyncMPClient, wait_until: Callable[..., Awaitable[None]], mode: dict[str, Any], die_at: str, max_tokens: int
) -> None:
    config = msgspec.structs.replace(fake_engine_config(socket_dir), **mode)
    command = [sys.executable, "-c", ENGINE, *to_args(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "DIE_AT": die_at}) as process:
        await wait_until(lambda: client.is_ready)
        await client.add_request(EngineCoreRequest("a", [1, 2, 3], SamplingParams(max_tokens=max_tokens), time.time()))
        with pytest.raises(EngineDeadError):
            while True:
                await client.get_output()
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == ExitCode.FAILED
    assert stderr.splitlines()[-1] == "stoker-engine: ExecutorFailedError: worker 0 was killed by signal 9"
