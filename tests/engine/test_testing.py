import asyncio
import doctest
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

import stoker_engine.testing
from stoker_engine.exit_codes import ExitCode
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreRequest, EnginePhase
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import to_args
from stoker_engine.testing import FakeEngineCore, Reply, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


def start(socket_dir: str, **script: Any) -> FakeEngineCore:
    return FakeEngineCore(fake_engine_config(socket_dir), Script(**script))


async def send(client: AsyncMPClient, num_tokens: int, prompt: list[int] | None = None, request_id: str = "a") -> None:
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    await client.add_request(EngineCoreRequest(request_id, prompt or [1, 2], params, arrival_time=time.time()))


async def receive(client: AsyncMPClient, num_tokens: int) -> list[int]:
    token_ids: list[int] = []
    while len(token_ids) < num_tokens:
        token_ids += itertools.chain.from_iterable(output.new_token_ids for output in (await client.get_output()).outputs)
    return token_ids


async def exit_code(engine: FakeEngineCore) -> int:
    return await asyncio.to_thread(engine.process.wait, 30)


def test_the_example_of_the_documentation_runs() -> None:
    results = doctest.testmod(stoker_engine.testing)
    assert results.attempted and not results.failed


async def test_each_prompt_gets_the_reply_that_the_script_has_for_it(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, replies=[Reply([1, 2], [10, 11]), Reply([3], [20])], default_reply=[30], quoting_token_id=9):
        await wait_until(lambda: client.is_ready)
        answers = []
        for prompt in ([1, 2], [3], [4, 9], [1, 9, 5, 9, 6]):
            await send(client, 2, prompt, str(prompt))
            answers.append(await receive(client, 2))
    assert answers == [[10, 11], [20, 20], [30, 30], [5, 9]]


async def test_a_load_takes_its_time_and_tells_its_progress(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, load_seconds=0.3):
        await wait_until(lambda: client.status.phase is EnginePhase.LOADING and 0.0 < client.status.progress < 1.0)
        await wait_until(lambda: client.is_ready)


async def test_the_engine_is_loaded_before_a_slow_ready(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, ready_seconds=0.3):
        await wait_until(lambda: client.status.phase is EnginePhase.WARMING_UP)
        assert not client.is_ready
        await wait_until(lambda: client.is_ready)


async def test_each_stream_gets_its_tokens_at_the_rate_of_the_script(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, tokens_per_second=100.0):
        await wait_until(lambda: client.is_ready)
        for name in ("a", "b"):
            await send(client, 20, request_id=name)
        started = time.monotonic()
        await receive(client, 40)
    assert time.monotonic() - started >= 0.18


async def test_an_engine_that_hangs_in_its_load_never_serves(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, hang_in_load=True):
        await wait_until(lambda: client.status.progress == 1.0)
        assert client.status.phase is EnginePhase.LOADING


async def test_an_engine_hangs_at_its_step(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, hang_at_step=3):
        await wait_until(lambda: client.is_ready)
        await send(client, 10)
        assert len(await receive(client, 2)) == 2
        await wait_until(lambda: client.status.heartbeat is not None and client.status.heartbeat.step_age > 0.5)


async def test_an_exception_at_a_step_ends_the_engine(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, crash_at_step=3) as engine:
        await wait_until(lambda: client.is_ready)
        await send(client, 10)
        assert await exit_code(engine) == ExitCode.FAILED


@pytest.mark.parametrize(("script", "code"), [({"load_error": "no such tensor"}, ExitCode.MODEL_LOAD_FAILED), ({"exit_code": 137}, 137)])
async def test_a_load_fails_with_the_exit_code_of_the_script(socket_dir: str, script: dict[str, Any], code: int) -> None:
    with start(socket_dir, **script) as engine:
        assert await exit_code(engine) == code


async def test_a_step_ends_the_process_with_the_exit_code_of_the_script(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, exit_at_step=3, exit_code=11) as engine:
        await wait_until(lambda: client.is_ready)
        await send(client, 10)
        assert await exit_code(engine) == 11


async def test_sigterm_has_no_effect_for_as_long_as_the_script_says(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with start(socket_dir, ignore_sigterm_seconds=0.5) as engine:
        await wait_until(lambda: client.is_ready)
        started = time.monotonic()
        for _ in range(3):
            engine.process.send_signal(signal.SIGTERM)
        assert await exit_code(engine) == ExitCode.OK
    assert time.monotonic() - started >= 0.5


async def test_the_program_takes_a_script_and_the_flags_of_an_engine(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    config = msgspec.structs.replace(fake_engine_config(socket_dir), max_model_len=64)
    command = [sys.executable, "-m", "stoker_engine.testing", '{"default_reply": [5]}', *to_args(config)]
    with subprocess.Popen(command) as process:
        await wait_until(lambda: client.is_ready)
        assert client.status.ready is not None and client.status.ready.max_model_len == 64
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [([], "a script in JSON"), (['{"hang": 1}'], "unknown field `hang`"), (["{}"], "--model-uri is required"), (["{}", "--no-such-flag"], "--no-such-flag")],
)
def test_the_program_says_what_is_wrong_with_its_arguments(arguments: list[str], problem: str) -> None:
    done = subprocess.run([sys.executable, "-m", "stoker_engine.testing", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, problem in done.stderr) == (ExitCode.BAD_CONFIG, True)
