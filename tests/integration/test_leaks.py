"""Random short requests, some aborted, some disconnected: afterwards nothing is in use, and no process has grown."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

NUM_CLIENTS = 32
NUM_SAMPLES = 100
MAX_GROWTH_BYTES = 1024
"""Per request."""


def pss(process: psutil.Process) -> int:
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


async def one_request(http: httpx.AsyncClient, random_: random.Random) -> None:
    """One of: completed, streamed or not; aborted after its first chunk; disconnected at a random moment."""
    n = random_.choice([1, 1, 2, 3])
    body = {
        "model": "smollm2",
        "prompt": [random_.randrange(17, 49152) for _ in range(random_.randrange(1, 13))],
        "max_tokens": random_.randrange(1, 6),
        "temperature": random_.choice([0.7, 1.0]),
        "n": n,
        "seed": random_.randrange(1000),
        "stream": random_.random() < 0.5,
    }
    fate = random_.random()
    if fate < 0.2:  # aborted: the consumer leaves after the first bytes of a longer answer
        async with http.stream("POST", "/v1/completions", json=body | {"stream": True, "max_tokens": 100, "ignore_eos": True}) as response:
            async for _ in response.aiter_bytes():
                break
    elif fate < 0.3:  # disconnected: queued, in prefill or in decode
        try:
            async with asyncio.timeout(random_.random() * 0.05):
                await http.post("/v1/completions", json=body | {"max_tokens": 100, "ignore_eos": True})
        except TimeoutError:
            return
    else:
        response = await http.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text


async def run_requests(url: str, count: int, on_count: Callable[[int], None]) -> None:
    random_ = random.Random(count)
    done = 0
    limits = httpx.Limits(max_connections=NUM_CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:

        async def client() -> None:
            nonlocal done
            while done < count:
                done += 1
                on_count(done)
                await one_request(http, random_)

        await asyncio.gather(*(client() for _ in range(NUM_CLIENTS)))


async def touch_the_kv_cache(url: str) -> None:
    """Fills every block once, so that its memory is resident before anything is measured."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        for start in range(0, 20):
            body = {"model": "smollm2", "prompt": [1000 + start] * 1000, "max_tokens": 1, "cache_salt": str(start)}
            assert (await http.post("/v1/completions", json=body)).status_code == 200


async def assert_nothing_is_left(replica: Any) -> None:
    async with httpx.AsyncClient(base_url=replica.url, timeout=10) as http:
        for _ in range(100):
            metrics = (await http.get("/metrics")).text
            values = {line.split("{")[0]: float(line.split()[-1]) for line in metrics.splitlines() if not line.startswith("#")}
            names = ("stoker_num_requests_running", "stoker_num_requests_waiting", "stoker_kv_cache_usage_ratio")
            if all(values[name] == 0.0 for name in names):
                break
            await http.post("/v1/completions", json={"model": "smollm2", "prompt": [1000], "max_tokens": 1})
        assert [values[name] for name in names] == [0.0, 0.0, 0.0]


@pytest.mark.property("P38")
@pytest.mark.case("C043", "C077")
async def test_random_requests_leave_nothing_in_use(start_replica: Callable[..., Any]) -> None:
    async with start_replica(dtype="bfloat16", max_model_len=1024, num_blocks_override=300, max_num_seqs=32) as replica:
        await run_requests(replica.url, 200, lambda _: None)
        await assert_nothing_is_left(replica)
        await replica.stop()


@pytest.mark.case("C043")
@pytest.mark.fault("E5")
@pytest.mark.stress
async def test_ten_thousand_requests_grow_no_process(start_replica: Callable[..., Any]) -> None:
    count, warm_up = 10_000, 2_000
    async with start_replica(dtype="bfloat16", max_model_len=1024, num_blocks_override=1024, max_num_seqs=32) as replica:
        await touch_the_kv_cache(replica.url)
        processes = {"api": psutil.Process(replica.api.pid), "engine": psutil.Process(replica.engine.pid)}
        samples: dict[str, list[tuple[int, int]]] = {name: [] for name in processes}

        def sample(done: int) -> None:
            if done > warm_up and (done - warm_up) % ((count - warm_up) // NUM_SAMPLES) == 0:
                for name, process in processes.items():
                    samples[name].append((done, pss(process)))

        await run_requests(replica.url, count, sample)
        await assert_nothing_is_left(replica)
        await replica.stop()
    slopes = {}
    for name, points in samples.items():
        assert len(points) == NUM_SAMPLES
        slopes[name] = float(np.polyfit(*zip(*points, strict=True), 1)[0])
    assert all(slope <= MAX_GROWTH_BYTES for slope in slopes.values()), slopes
