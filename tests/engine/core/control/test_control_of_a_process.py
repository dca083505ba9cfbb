import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from stoker_engine.config import EngineConfig, LifecycleConfig
from stoker_engine.errors import EngineDeadError, EngineGenerateError, EngineNotReadyError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.engine_control import EngineControl
from stoker_engine.protocol import EngineCoreOutput, EngineCoreRequest, EnginePhase, PauseMode, SleepTag
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import to_args
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]
Control = EngineControl[Awaitable[None], Awaitable[bool]]


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


@pytest.fixture
def control(client: AsyncMPClient) -> Control:
    return EngineControl(client.call_utility)


def config(socket_dir: str, **lifecycle: str) -> EngineConfig:
    return msgspec.structs.replace(fake_engine_config(socket_dir), lifecycle=LifecycleConfig(**lifecycle))


async def send(client: AsyncMPClient, request_id: str, max_tokens: int) -> None:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    await client.add_request(EngineCoreRequest(request_id, [1, 2, 3], params, time.time()))


async def last_output(client: AsyncMPClient, request_id: str) -> EngineCoreOutput:
    while True:
        for output in (await client.get_output()).outputs:
            if output.request_id == request_id and output.finish_reason is not None:
                return output


async def begin(client: AsyncMPClient, wait_until: WaitUntil, max_tokens: int) -> None:
    """Request "a", whose first token has come."""
    await wait_until(lambda: client.is_ready)
    await send(client, "a", max_tokens)
    while not (await client.get_output()).outputs:
        pass


async def sent(call: Awaitable[None]) -> "asyncio.Future[None]":
    """A call on its way, with its answer to come."""
    future = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    return future


async def exit_code(engine: FakeEngineCore) -> int:
    return await asyncio.to_thread(engine.process.wait, 30)


def termination(socket_dir: str) -> dict[str, object]:
    return json.loads(Path(socket_dir, "engine-termination.json").read_text())


def cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.fault("D20")
async def test_a_pause_that_waits_is_answered_when_the_last_request_has_finished(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 30)
        pause = await sent(control.pause_generation(PauseMode.WAIT))
        assert (await last_output(client, "a")).finish_reason is FinishReason.LENGTH
        await pause
        assert await control.is_paused()
        await send(client, "b", 1)
        await control.resume_generation()
        assert (await last_output(client, "b")).finish_reason is FinishReason.LENGTH


async def test_the_loop_answers_other_calls_while_a_pause_waits(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 5000)
        pause = await sent(control.pause_generation(PauseMode.WAIT))
        assert await control.is_paused()
        assert (await client.call_utility("get_scheduler_stats"))["num_running"] == 1
        assert not pause.done()
        await control.resume_generation()
        with pytest.raises(EngineGenerateError, match="call to pause failed: the engine was resumed"):
            await pause


async def test_aborting_pauses_tell_the_requests_before_the_caller(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 5000)
        await control.pause_generation()
        assert (await asyncio.wait_for(last_output(client, "a"), 1)).finish_reason is FinishReason.ABORT


async def test_a_paused_engine_with_frozen_requests_waits_and_does_not_count_as_hung(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)) as engine:
        await begin(client, wait_until, 60)
        await control.pause_generation(PauseMode.KEEP)
        before, heard = cpu_seconds(engine.process), client.status.heartbeat
        # What the watchdogs go by: nothing is expected of the loop, and it is in no turn.
        await wait_until(lambda: (beat := client.status.heartbeat) is not None and beat is not heard and beat.num_requests == beat.loop_age == 0)
        assert cpu_seconds(engine.process) - before < 0.5
        await control.resume_generation()
        assert (await last_output(client, "a")).finish_reason is FinishReason.LENGTH


async def test_a_busy_engine_may_take_longer_to_fall_asleep_than_a_step_may_take(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    script = Script(step_seconds=0.01, sleep_seconds=1.6)
    with FakeEngineCore(config(socket_dir, engine_hang_timeout="1s"), script):
        await begin(client, wait_until, 5000)
        await control.sleep(1, PauseMode.KEEP)
        assert await control.is_sleeping()


@pytest.mark.case("C063")
@pytest.mark.parametrize("mode", [PauseMode.WAIT, PauseMode.KEEP])
async def test_memory_goes_when_the_steps_under_way_have_ended_and_the_request_has_its_own_tokens(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil, mode: PauseMode
) -> None:
    asynchronous = msgspec.structs.replace(fake_engine_config(socket_dir), async_scheduling=True, max_concurrent_batches=4)
    with FakeEngineCore(asynchronous, Script(step_seconds=0.005)):
        await wait_until(lambda: client.is_ready)
        tokens: dict[str, list[int]] = {"undisturbed": [], "slept": []}
        for request_id, of_request in tokens.items():
            await send(client, request_id, 40)
            finished = False
            while not finished:
                for output in (await client.get_output()).outputs:
                    of_request += output.new_token_ids
                    finished = output.finish_reason is not None
                if request_id == "slept" and len(of_request) == 10:
                    await control.sleep(2, mode)
                    await control.wake_up()
        assert tokens["slept"] == tokens["undisturbed"]


@pytest.mark.case("C063")
async def test_an_engine_that_sleeps_is_not_ready_and_is_ready_again_when_it_wakes(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        await wait_until(lambda: client.is_ready)
        for _ in range(20):
            await control.sleep()
            assert await control.is_sleeping()
            assert not client.is_ready
            assert client.status.phase is EnginePhase.SLEEPING
            with pytest.raises(EngineNotReadyError, match="the engine is sleeping"):
                await send(client, "refused", 1)
            await control.wake_up([SleepTag.WEIGHTS])
            assert not client.is_ready
            await control.wake_up([SleepTag.KV_CACHE])
            assert client.is_ready
        await send(client, "b", 1)
        assert (await last_output(client, "b")).finish_reason is FinishReason.LENGTH


async def test_wrong_arguments_are_told_and_harm_nothing(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        await wait_until(lambda: client.is_ready)
        for args, words in (
            (("sleep", 3), "argument level = 3"),
            (("wake_up", ["disk"]), "'disk'"),
            (("pause", "stop"), "'stop'"),
            (("step",), "no utility method"),
        ):
            with pytest.raises(EngineGenerateError, match=words):
                await client.call_utility(*args)
        assert client.is_ready


async def test_a_pause_ends_with_its_client(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 5000)
        pending = await sent(control.pause_generation(PauseMode.WAIT))
        assert await control.is_paused()
        await client.shutdown()
        with pytest.raises(EngineDeadError):
            await pending
        late = AsyncMPClient(ClientConfig(socket_dir))
        await wait_until(lambda: late.is_ready)
        await send(late, "b", 2)
        assert (await last_output(late, "b")).finish_reason is FinishReason.LENGTH
        assert (await late.call_utility("get_scheduler_stats"))["num_running"] == 0
        await late.shutdown()


async def test_the_next_client_of_an_engine_that_sleeps_is_told_so_and_can_wake_it(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        await wait_until(lambda: client.is_ready)
        await control.sleep(2)
        await client.shutdown()
        late = AsyncMPClient(ClientConfig(socket_dir))
        late_control: Control = EngineControl(late.call_utility)
        await wait_until(lambda: late.takes_calls)
        assert not late.is_ready
        assert await late_control.is_sleeping()
        await late_control.wake_up()
        assert late.is_ready
        await send(late, "b", 1)
        assert (await last_output(late, "b")).finish_reason is FinishReason.LENGTH
        await late.shutdown()


@pytest.mark.property("P53")
@pytest.mark.fault("D20")
async def test_a_drain_lets_the_requests_of_a_pause_finish(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config(socket_dir, drain_timeout="60s"), Script(step_seconds=0.01)) as engine:
        await begin(client, wait_until, 30)
        await control.pause_generation(PauseMode.KEEP)
        await send(client, "b", 3)
        assert await control.is_paused()  # and the request before it has come
        engine.process.terminate()
        assert (await last_output(client, "b")).finish_reason is FinishReason.LENGTH
        assert await exit_code(engine) == ExitCode.OK
    assert termination(socket_dir)["reason"] == "Drained"
    assert termination(socket_dir)["completed"] == 2


async def test_an_engine_without_its_memory_ends_at_once_when_told_to(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config(socket_dir, drain_timeout="1h"), Script(step_seconds=0.01)) as engine:
        await begin(client, wait_until, 5000)
        await control.sleep(1, PauseMode.KEEP)
        engine.process.terminate()
        assert (await last_output(client, "a")).finish_reason is FinishReason.ABORT
        assert await exit_code(engine) == ExitCode.OK
    assert termination(socket_dir)["aborted"] == 1


async def test_a_stop_right_after_a_pause_that_aborts_loses_no_requests_end(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(config(socket_dir, drain_timeout="1h"), Script(step_seconds=0.3)) as engine:
        await begin(client, wait_until, 5000)
        pending = await sent(control.pause_generation(PauseMode.ABORT))
        engine.process.terminate()
        assert (await asyncio.wait_for(last_output(client, "a"), 5)).finish_reason is FinishReason.ABORT
        assert await exit_code(engine) == ExitCode.OK
        await asyncio.gather(pending, return_exceptions=True)


@pytest.mark.property("P50")
@pytest.mark.fault("B5")
async def test_calls_that_wait_are_answered_when_the_engine_shuts_down(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config(socket_dir, drain_timeout="1h"), Script(step_seconds=0.01)) as engine:
        await begin(client, wait_until, 5000)
        pending = [await sent(control.pause_generation(PauseMode.WAIT)), await sent(control.sleep(1, PauseMode.WAIT))]
        assert await control.is_paused()
        engine.process.terminate()
        for call, name in zip(pending, ("pause", "sleep"), strict=True):
            with pytest.raises(EngineGenerateError, match=f"call to {name} failed: the engine is shutting down"):
                await call
        engine.process.terminate()
        assert await exit_code(engine) == ExitCode.OK


@pytest.mark.property("P50", "P55")
@pytest.mark.fault("B5")
@pytest.mark.parametrize("how", ["killed", "crashed"])
async def test_calls_that_wait_fail_when_the_engine_dies(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil, how: str) -> None:
    script = Script(step_seconds=0.01, crash_at_step=50 if how == "crashed" else None)
    with FakeEngineCore(fake_engine_config(socket_dir), script) as engine:
        await begin(client, wait_until, 5000)
        pending = await sent(control.pause_generation(PauseMode.WAIT))
        assert await control.is_paused()
        if how == "killed":
            engine.process.kill()
        with pytest.raises(EngineDeadError):
            await pending


@pytest.mark.property("P50")
@pytest.mark.fault("B5")
async def test_calls_that_wait_fail_when_the_client_itself_fails(socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 5000)
        pending = await sent(control.pause_generation(PauseMode.WAIT))
        Path(socket_dir, "output.sock").unlink()  # which the client notices, and takes for its end
        with pytest.raises(EngineDeadError, match="the client failed"):
            await asyncio.wait_for(pending, 5)
        assert not client.is_ready
        with pytest.raises(EngineNotReadyError):
            await control.is_paused()


@pytest.mark.property("P50")
@pytest.mark.fault("B6")
async def test_answers_are_never_mixed_up_and_a_cancelled_caller_leaves_nothing(
    socket_dir: str, client: AsyncMPClient, control: Control, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)):
        await begin(client, wait_until, 5000)
        cancelled = await sent(control.pause_generation(PauseMode.WAIT))
        methods = ["is_paused", "get_scheduler_stats", "is_sleeping", "missing"] * 25
        calls = [asyncio.ensure_future(client.call_utility(method)) for method in methods]
        cancelled.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kinds = {"is_paused": True, "is_sleeping": False}
        for method, answer in zip(methods, answers, strict=True):
            if method in kinds:
                assert answer is kinds[method]
            else:
                assert isinstance(answer, dict if method == "get_scheduler_stats" else EngineGenerateError)
        await control.resume_generation()  # answers the cancelled call, whom nobody awaits
        assert not await control.is_paused()


PROGRAM = """
import gc, sys
from stoker_engine.config import EngineConfig
from stoker_engine.core.run import EngineProcess
from stoker_engine.settings import from_args
from stoker_engine.testing import Script, ScriptedExecutor

class Executor(ScriptedExecutor):
    def shutdown(self):
        print("executor", gc.get_freeze_count() > 0, flush=True)
        super().shutdown()

EngineProcess(from_args(EngineConfig, sys.argv[1:], program="engine"), lambda config: Executor(Script())).run()
print("end", gc.get_freeze_count() > 0)
"""


@pytest.mark.fault("B13")
async def test_what_start_up_froze_is_unfrozen_after_the_device_is_freed(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    command = [sys.executable, "-c", PROGRAM, *to_args(fake_engine_config(socket_dir))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        await wait_until(lambda: client.is_ready)
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)
    assert output.split("\n") == ["executor True", "end False", ""]
