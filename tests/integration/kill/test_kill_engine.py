import asyncio
import signal
from typing import Any

import pytest


def assert_ended_with_an_error(streams: Any) -> None:
    for stream in streams.all:
        assert stream.error is not None and stream.error["code"] == "engine_dead", stream
        assert (stream.num_done, stream.finish_reason) == (1, None)


@pytest.mark.property("P54", "P55")
@pytest.mark.case("C065")
async def test_a_killed_engine_ends_every_stream_and_its_successor_serves_behind_the_same_api(runs: Any, kill: Any, results: Any, limit: Any) -> None:
    ended, unready, ready = [], [], []
    for _ in runs:
        async with runs.ready() as instance:
            expected = (await instance.post()).json()["choices"][0]["text"]
            api_pid = instance.api.pid
            async with instance.streams(max_tokens=900) as streams:
                killed = kill(instance.engine, signal.SIGKILL)
                unready.append(await instance.wait_until(lambda: is_unready(instance), 10) - killed)
                refused = await instance.post()
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                await streams.wait()
            assert_ended_with_an_error(streams)
            ended.append(max(stream.ended for stream in streams.all) - killed)
            await asyncio.to_thread(instance.engine.wait)
            assert (await instance.readyz())[1] in ("dead", "failed")
            instance.start_engine()
            ready.append(await instance.wait_until_ready() - killed)
            assert (await instance.post()).json()["choices"][0]["text"] == expected
            assert instance.api.poll() is None and instance.api.pid == api_pid
    results.add("SIGKILL engine: /readyz is 503", unready, limit(1, 5))
    results.add("SIGKILL engine: the last of 8 streams has its error", ended, limit(1, 5))
    results.add("SIGKILL engine: another one serves behind the same api", ready, limit(30, 60))


async def is_unready(instance: Any) -> bool:
    return not await instance.is_ready()


@pytest.mark.fault("B2", "B7")
@pytest.mark.case("C067")
async def test_a_stopped_engine_is_unresponsive_then_hung_and_serves_again_when_it_goes_on(real_runs: Any, kill: Any, results: Any, limit: Any) -> None:
    hang = 6.0
    unresponsive, hung, again = [], [], []
    for _ in real_runs:
        async with real_runs.ready(engine_hang_timeout="6s") as instance, instance.streams(max_tokens=900) as streams:
            stopped = kill(instance.engine, signal.SIGSTOP)
            seen = await states_until(instance, "hung", stopped)
            assert list(seen)[-2:] == ["unresponsive", "hung"], seen
            assert seen["hung"] >= hang, "never before its time"
            await streams.wait()
            assert_ended_with_an_error(streams)
            assert (await instance.post()).status_code == 503
            assert (await instance.http.get("/livez")).status_code == 200
            going_on = kill(instance.engine, signal.SIGCONT)
            again.append(await instance.wait_until_ready() - going_on)
            assert (await instance.post()).status_code == 200
            assert instance.engine.poll() is None
            unresponsive.append(seen["unresponsive"])
            hung.append(seen["hung"])
    results.add("SIGSTOP engine: unresponsive", unresponsive, limit(5, 5))
    results.add("SIGSTOP engine: hung (engineHangTimeout 6 s)", hung, limit(hang + 3, hang + 3))
    results.add("SIGCONT engine: serves again", again, limit(5, 10))


async def states_until(instance: Any, last: str, since: float) -> dict[str, float]:
    """The states in the order of their first appearance, with the seconds when that was."""
    seen: dict[str, float] = {}

    async def reached() -> bool:
        status, state = await instance.readyz()
        assert status == (200 if state in ("ready", "busy") else 503)
        seen.setdefault(state, asyncio.get_running_loop().time() - since)
        return state == last

    await instance.wait_until(reached, 60)
    return seen


@pytest.mark.case("C067")
async def test_a_stop_shorter_than_the_hang_timeout_costs_no_request(real_runs: Any, kill: Any) -> None:
    for _ in range(min(real_runs.count, 3)):
        async with real_runs.ready(engine_hang_timeout="60s") as instance, instance.streams() as streams:
            stopped = kill(instance.engine, signal.SIGSTOP)
            await states_until(instance, "unresponsive", stopped)
            kill(instance.engine, signal.SIGCONT)
            await instance.wait_until_ready()
            await streams.wait()
            assert [stream.finish_reason for stream in streams.all] == ["length"] * 8
