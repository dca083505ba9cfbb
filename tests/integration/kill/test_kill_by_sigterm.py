import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from stoker_engine.addresses import SocketAddresses
from stoker_engine.config import LifecycleConfig
from stoker_engine.exit_codes import ExitCode
from stoker_engine.testing import Script


@pytest.fixture
def undisturbed() -> dict[str, list[str]]:
    """The texts of a model's streams when nothing happens, once they are known."""
    return {}


async def texts_of(instance: Any, undisturbed: dict[str, list[str]]) -> list[str]:
    if "texts" not in undisturbed:
        async with instance.streams() as streams:
            await streams.wait()
        undisturbed["texts"] = streams.texts
    return undisturbed["texts"]


def counts(message: dict[str, Any]) -> tuple[str, int, int, int]:
    return message["reason"], message.get("inFlightAtStart", 0), message.get("completed", 0), message.get("aborted", 0)


async def test_streams_that_fit_the_drain_of_the_api_finish_as_if_undisturbed(real_runs: Any, kill: Any, results: Any, limit: Any, undisturbed: Any) -> None:
    gone = []
    for _ in real_runs:
        async with real_runs.ready() as instance:
            expected = await texts_of(instance, undisturbed)
            async with instance.streams() as streams:
                kill(instance.api, signal.SIGTERM)
                await streams.wait()
                last = max(stream.ended for stream in streams.all)
            assert (streams.texts, [stream.num_done for stream in streams.all]) == (expected, [1] * 8)
            assert await instance.exit_code(instance.api) == ExitCode.OK
            gone.append(time.monotonic() - last)
            assert counts(instance.termination("api")) == ("Drained", 8, 8, 0)
            assert instance.engine.poll() is None
            kill(instance.engine, signal.SIGTERM)
            assert await instance.exit_code(instance.engine) == ExitCode.OK
            assert counts(instance.termination("engine")) == ("Drained", 0, 0, 0)
    results.add("SIGTERM api: gone after its last stream", gone, limit(2, 5))


async def test_streams_that_fit_the_drain_of_the_engine_finish_as_if_undisturbed(real_runs: Any, kill: Any, undisturbed: Any) -> None:
    for _ in real_runs:
        async with real_runs.ready() as instance:
            expected = await texts_of(instance, undisturbed)
            async with instance.streams() as streams:
                kill(instance.engine, signal.SIGTERM)
                await instance.wait_until(lambda: is_draining(instance))
                assert (await instance.post()).status_code == 503
                await streams.wait()
            assert (streams.texts, [stream.num_done for stream in streams.all]) == (expected, [1] * 8)
            assert await instance.exit_code(instance.engine) == ExitCode.OK
            assert counts(instance.termination("engine")) == ("Drained", 8, 8, 0)
            assert instance.api.poll() is None


async def is_draining(instance: Any) -> bool:
    return (await instance.readyz())[1] in ("draining", "dead")


@pytest.mark.fault("F5", "F6")
@pytest.mark.property("P53", "P70")
async def test_streams_that_fit_the_drain_of_both_finish_as_if_undisturbed(runs: Any, kill: Any, undisturbed: Any) -> None:
    for _ in runs:
        async with runs.ready() as instance:
            expected = await texts_of(instance, undisturbed)
            async with instance.streams() as streams:
                kill(instance.engine, signal.SIGTERM)
                kill(instance.api, signal.SIGTERM)
                await streams.wait()
            assert (streams.texts, [stream.num_done for stream in streams.all]) == (expected, [1] * 8)
            assert [await instance.exit_code(process) for process in (instance.api, instance.engine)] == [ExitCode.OK] * 2
            assert [counts(instance.termination(name)) for name in ("api", "engine")] == [("Drained", 8, 8, 0)] * 2


@pytest.mark.fault("F8")
@pytest.mark.property("P53")
@pytest.mark.parametrize("half", ["api", "engine"])
async def test_a_second_sigterm_aborts_every_stream(runs: Any, kill: Any, results: Any, limit: Any, half: str) -> None:
    ended = []
    for _ in runs:
        async with runs.ready() as instance:
            process = getattr(instance, half)
            async with instance.streams(max_tokens=900) as streams:
                kill(process, signal.SIGTERM)
                await instance.wait_until(lambda: is_unready(instance))
                again = kill(process, signal.SIGTERM)
                await streams.wait()
            assert [(stream.finish_reason, stream.num_done) for stream in streams.all] == [("abort", 1)] * 8
            assert await instance.exit_code(process) == ExitCode.OK
            ended.append(time.monotonic() - again)
            assert counts(instance.termination(half)) == ("Aborted", 8, 0, 8)
    results.add(f"SIGTERM {half} twice: gone", ended, limit(2, 6))


async def is_unready(instance: Any) -> bool:
    return not await instance.is_ready()


@pytest.mark.fault("F8")
async def test_a_third_signal_ends_an_engine_in_the_middle_of_a_step(scripted: Callable[[Script], Any], kill: Any) -> None:
    async with scripted(Script(hang_at_step=2)).ready() as instance:
        post = asyncio.create_task(instance.post(ignore_eos=True))
        await instance.wait_until(lambda: is_in_long_step(instance))
        for number in (signal.SIGTERM, signal.SIGINT):
            kill(instance.engine, number)
        await instance.wait_until(lambda: has_no_pending_signal(instance.engine.pid))
        assert instance.engine.poll() is None
        kill(instance.engine, signal.SIGTERM)
        assert await instance.exit_code(instance.engine) == ExitCode.FAILED
        assert counts(instance.termination("engine")) == ("Killed", 1, 0, 1)
        assert (await post).status_code == 503


async def is_in_long_step(instance: Any) -> bool:
    return await instance.metric("step_age_seconds") > 0.2


async def has_no_pending_signal(pid: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return all(int(line.split()[1], 16) == 0 for line in status if line.startswith(("SigPnd", "ShdPnd")))


async def test_a_third_signal_ends_the_api_on_the_spot(real_runs: Any, kill: Any) -> None:
    for _ in real_runs:
        async with real_runs.ready() as instance, instance.streams(max_tokens=900):
            kill(instance.api, signal.SIGTERM)
            await instance.wait_until(lambda: is_unready(instance))
            for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):  # the second and the third come at once
                kill(instance.api, number)
            assert await instance.exit_code(instance.api) == ExitCode.FAILED
            assert counts(instance.termination("api")) == ("Killed", 8, 0, 8)


@pytest.mark.case("C072")
@pytest.mark.parametrize("phase", ["starting", "loading", "profiling", "warming_up"])
async def test_sigterm_while_the_engine_starts_ends_it_at_once(real_runs: Any, kill: Any, results: Any, limit: Any, phase: str) -> None:
    gone = []
    for _ in real_runs:
        async with real_runs.empty() as instance:
            instance.start_engine()
            await instance.wait_until(lambda: has_reached(instance, phase))
            told = kill(instance.engine, signal.SIGTERM)
            assert await instance.exit_code(instance.engine) == ExitCode.OK
            gone.append(time.monotonic() - told)
            assert instance.termination("engine")["reason"] in ("Aborted", "Drained")
    results.add(f"SIGTERM engine while {phase}: gone", gone, limit(2, 10))


PHASES = ["starting", "loading", "profiling", "warming_up", "ready"]


async def has_reached(instance: Any, phase: str) -> bool:
    return PHASES.index(await instance.phase()) >= PHASES.index(phase)


@pytest.mark.case("C072")
async def test_sigterm_ends_a_load_that_sits_in_a_long_sleep(scripted: Callable[[Script], Any], kill: Any) -> None:
    async with scripted(Script(load_seconds=6000)).empty() as instance:
        instance.start_engine()
        await instance.wait_until(lambda: has_reached(instance, "loading"))
        kill(instance.engine, signal.SIGTERM)
        assert await instance.exit_code(instance.engine) == ExitCode.OK
        message = instance.termination("engine")
        assert (message["reason"], message["phase"], message["lastError"]) == ("Aborted", "loading", "SIGTERM while loading")


LOAD_IN_NATIVE_CODE = """
import ctypes, sys
from stoker_engine.config import EngineConfig
from stoker_engine.core.run import EngineProcess
from stoker_engine.settings import from_args
from stoker_engine.testing import Script, ScriptedExecutor

class NativeLoad(ScriptedExecutor):
    def load_model(self, on_progress):
        mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)  # for ever, whatever signal comes

sys.exit(EngineProcess(from_args(EngineConfig, sys.argv[1:], program="engine"), lambda config: NativeLoad(Script())).run())
"""


@pytest.mark.fault("A6")
@pytest.mark.case("C072")
async def test_sigterm_ends_a_load_that_sits_in_native_code(scripted: Callable[[Script], Any], kill: Any) -> None:
    async with scripted(Script()).empty() as instance:
        instance.start_engine(["-c", LOAD_IN_NATIVE_CODE])
        await instance.wait_until(lambda: has_reached(instance, "loading"))
        kill(instance.engine, signal.SIGTERM)
        assert await instance.exit_code(instance.engine) == ExitCode.OK
        message = instance.termination("engine")
        assert (message["reason"], message["lastError"]) == ("Aborted", "SIGTERM while loading")


@pytest.mark.fault("A1", "A3")
@pytest.mark.case("C072")
async def test_a_start_that_takes_too_long_ends_also_in_native_code_and_says_where_it_was(scripted: Callable[[Script], Any]) -> None:
    async with scripted(Script()).empty() as instance:
        instance.start_engine(["-c", LOAD_IN_NATIVE_CODE], lifecycle=LifecycleConfig(startup_timeout="2s"))
        assert await instance.exit_code(instance.engine) == ExitCode.STARTUP_TIMEOUT
        words = instance.termination("engine")["lastError"]
        assert words.startswith("not ready after 2s (startupTimeout): in phase loading (0%) for ") and words.endswith("; no api is connected")


async def test_sigterm_ends_an_engine_whose_api_never_answers_its_hello(scripted: Callable[[Script], Any], kill: Any) -> None:
    async with scripted(Script()).empty() as instance:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as mute:
            mute.linger = 0
            mute.bind(SocketAddresses(instance.directory).handshake)
            instance.start_engine()
            assert await asyncio.to_thread(mute.poll, 30_000)
            await instance.wait_until(lambda: has_reached(instance, "ready"))
            kill(instance.engine, signal.SIGTERM)
            assert await instance.exit_code(instance.engine) == ExitCode.OK
            assert counts(instance.termination("engine")) == ("Drained", 0, 0, 0)
        SocketAddresses(instance.directory).handshake_path.unlink()


@pytest.mark.fault("B7")
@pytest.mark.case("C068")
@pytest.mark.parametrize("step_seconds", [2.5, pytest.param(20.0, marks=pytest.mark.stress)])
async def test_a_long_step_is_busy_and_never_hung(scripted: Callable[[Script], Any], step_seconds: float) -> None:
    async with scripted(Script(step_seconds=step_seconds)).ready(engine_hang_timeout="60s") as instance:
        post = asyncio.create_task(instance.post(max_tokens=1))
        seen = set()
        while not post.done():
            status, state = await instance.readyz()
            seen.add((status, state))
            assert (await instance.health.get("/livez")).status_code == 200
        assert seen == {(200, "ready"), (200, "busy")}
        assert post.result().status_code == 200
