import asyncio
import signal
from typing import Any

import httpx
import pytest


@pytest.mark.fault("B1")
@pytest.mark.property("P54")
@pytest.mark.case("C070")
async def test_a_killed_api_leaves_an_idle_engine_that_the_next_api_takes_at_once(runs: Any, kill: Any, results: Any, limit: Any) -> None:
    idle, ready = [], []
    for _ in runs:
        async with runs.ready() as instance:
            expected = (await instance.post()).json()["choices"][0]["text"]
            engine_pid = instance.engine.pid
            async with instance.streams(max_tokens=900) as streams:
                assert await instance.metric("num_requests_running") == 8
                killed = kill(instance.api, signal.SIGKILL)
                await asyncio.to_thread(instance.api.wait)
                instance.start_api()
                idle.append(await instance.wait_until(instance.is_idle, 10) - killed)
                broken = await asyncio.gather(*streams.tasks, return_exceptions=True)
                assert all(isinstance(error, httpx.TransportError) for error in broken)
            assert await instance.metric("requests_aborted_total") == 8
            ready.append(await instance.wait_until_ready() - killed)
            assert instance.engine.poll() is None and instance.engine.pid == engine_pid
            assert (await instance.post()).json()["choices"][0]["text"] == expected
    results.add("SIGKILL api: its requests are aborted, KV use is 0", idle, limit(1, 5))
    results.add("SIGKILL api: a new api is READY", ready, limit(3, 10))


@pytest.mark.case("C070")
async def test_an_api_killed_while_the_model_loads_costs_the_load_nothing(real_runs: Any, kill: Any) -> None:
    for _ in range(min(real_runs.count, 3)):
        async with real_runs.empty() as instance:
            instance.start_api()
            instance.start_engine()
            await instance.wait_until(lambda: knows_of_an_engine(instance))
            kill(instance.api, signal.SIGKILL)
            await asyncio.to_thread(instance.api.wait)
            instance.start_api()
            await instance.wait_until_ready()
            assert (await instance.post()).status_code == 200


async def knows_of_an_engine(instance: Any) -> bool:
    return (await instance.readyz())[1] != "absent"
