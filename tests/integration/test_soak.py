"""Mixed load over HTTP while the api is killed again and again: afterwards nothing is in use, every counter agrees, and the engine is as it was."""

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from stoker_kernels.linear import padded_rows

logger = logging.getLogger(__name__)

NUM_CLIENTS = 16
MAX_CHOICES = 3
MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 32
NUM_BLOCKS = 256
"""4 times the longest prompt: long prompts wait for blocks and preempt each other."""
MAX_GROWTH_BYTES = 1024
"""Per request, of which there must be enough to tell."""
ENOUGH_REQUESTS = 2000
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""An api starts these threads, asyncio's own, when work for them comes."""


@dataclass(frozen=True)
class Soak:
    seconds: float
    seconds_between_kills: float


SOAKS = [pytest.param(Soak(30, 10), id="30-seconds"), pytest.param(Soak(20 * 60, 120), id="20-minutes")]

Random = random.Random


def completion(random_: Random, **fields: Any) -> dict[str, Any]:
    prompt = [random_.randrange(17, 49152) for _ in range(random_.randrange(1, 33))]
    return {"model": "smollm2", "prompt": prompt, "max_tokens": random_.randrange(1, 25), "seed": random_.randrange(1000), **fields}


async def post(http: httpx.AsyncClient, body: dict[str, Any], path: str = "/v1/completions") -> dict[str, Any]:
    response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert 1 <= answer["usage"]["completion_tokens"] <= body["max_tokens"] * len(answer["choices"])
    assert {choice["finish_reason"] for choice in answer["choices"]} <= {"stop", "length"}
    return answer


async def whole_answer(http: httpx.AsyncClient, random_: Random) -> None:
    text = " ".join(random_.choices(["sun", "Paris", "漢字", "😀", "why", "42", "tell me"], k=random_.randrange(1, 40)))
    await post(http, {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 16}, "/v1/chat/completions")


async def several_choices(http: httpx.AsyncClient, random_: Random) -> None:
    answer = await post(http, completion(random_, n=MAX_CHOICES))
    assert [choice["index"] for choice in answer["choices"]] == [*range(MAX_CHOICES)]


async def logprobs(http: httpx.AsyncClient, random_: Random) -> None:
    answer = await post(http, completion(random_, logprobs=3))
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == answer["usage"]["completion_tokens"]


async def long_prompt(http: httpx.AsyncClient, random_: Random) -> None:
    await post(http, completion(random_, prompt=[random_.randrange(17, 49152) for _ in range(random_.randrange(500, 950))], max_tokens=4))


async def stream(http: httpx.AsyncClient, random_: Random) -> None:
    async with http.stream("POST", "/v1/completions", json=completion(random_, stream=True)) as response:
        assert response.status_code == 200
        events = [line.removeprefix("data: ") async for line in response.aiter_lines() if line]
    *chunks, done = events
    assert done == "[DONE]"
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] in {"stop", "length"}


async def disconnect(http: httpx.AsyncClient, random_: Random) -> None:
    """At a random moment: queued, in prefill, in decode, or just over; streamed or not, one choice or several."""
    body = completion(random_, stream=random_.random() < 0.5, n=random_.randrange(1, MAX_CHOICES + 1), max_tokens=100, ignore_eos=True)
    try:
        async with asyncio.timeout(random_.random() ** 2 * 2):
            await http.post("/v1/completions", json=body)
    except TimeoutError:
        return


async def bad_request(http: httpx.AsyncClient, random_: Random) -> None:
    fields, status = random_.choice(
        [
            ({"temperature": -1}, 400),
            ({"model": "another"}, 404),
            ({"prompt": [1000] * MAX_MODEL_LEN}, 400),
            ({"prompt": [10**9]}, 400),
            ({"max_tokens": "many"}, 400),
            ({"n": 0}, 400),
        ]
    )
    response = await http.post("/v1/completions", json=completion(random_) | fields)
    assert response.status_code == status, response.text


KINDS: dict[Callable[[httpx.AsyncClient, Random], Awaitable[None]], int] = {
    stream: 30,
    whole_answer: 20,
    disconnect: 15,
    bad_request: 10,
    logprobs: 10,
    several_choices: 10,
    long_prompt: 5,
}
"""How often each kind comes, in percent."""


@dataclass
class Load:
    """Clients that send one request after the other while an api serves. A lost connection is forgiven where the api was killed meanwhile."""

    url: str
    serves: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    num_kills: int = 0
    num_done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run(self, control: Awaitable[None]) -> None:
        """While `control` runs."""
        self.serves.set()
        async with asyncio.TaskGroup() as clients:
            for index in range(NUM_CLIENTS):
                clients.create_task(self._client(random.Random(index)))
            await control
            self.is_over = True

    async def _client(self, random_: Random) -> None:
        # A connection for each request: one that is kept alive may end at any time.
        async with httpx.AsyncClient(base_url=self.url, timeout=120, limits=httpx.Limits(max_keepalive_connections=0)) as http:
            while not self.is_over:
                await self.serves.wait()
                (kind,) = random_.choices([*KINDS], [*KINDS.values()])
                num_kills = self.num_kills
                try:
                    await kind(http, random_)
                except httpx.TransportError as error:
                    assert self.num_kills > num_kills, f"{kind.__name__}: {error!r} though no api was killed"
                    self.outcomes["cut"] += 1
                else:
                    self.outcomes[kind.__name__] += 1
                self.num_done += 1


@dataclass(frozen=True)
class Ends:
    """An api's counters: requests sent to the engine, and those that finished, were aborted or failed."""

    num_requests: int
    num_ended: int


async def read_metrics(url: str) -> Counter[str]:
    """The sum of each metric's samples over its labels."""
    async with httpx.AsyncClient(timeout=30) as http:
        page = (await http.get(f"{url}/metrics")).text
    values: Counter[str] = Counter()
    for line in page.splitlines():
        if not line.startswith("#"):
            sample, _, value = line.rpartition(" ")
            values[sample.partition("{")[0]] += float(value)  # type: ignore[assignment]
    return values


async def read_ends(url: str) -> Ends:
    values = await read_metrics(url)
    return Ends(int(values["stoker_requests_total"]), int(values["stoker_request_success_total"]))


async def kill_apis(replica: Any, load: Load, soak: Soak) -> None:
    """The counters of each life but the last are checked at its end, with requests in flight. The last api lives as long as the others."""
    for _ in range(round(soak.seconds / soak.seconds_between_kills) - 1):
        await asyncio.sleep(soak.seconds_between_kills)
        ends = await read_ends(replica.url)
        assert 0 <= ends.num_requests - ends.num_ended <= NUM_CLIENTS * MAX_CHOICES, ends
        assert ends.num_ended > 0
        load.serves.clear()
        load.num_kills += 1
        await replica.replace_api()
        load.serves.set()
    await asyncio.sleep(soak.seconds_between_kills)


@dataclass
class Memory:
    """Samples of the engine's memory, (requests done, bytes), one a second: without the pages of libraries, which count less the more processes share them."""

    samples: list[tuple[int, int]] = field(default_factory=list)

    async def watch(self, pid: int, load: Load) -> None:
        """Until cancelled."""
        while True:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            self.samples.append((load.num_done, next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss_Anon:"))))
            await asyncio.sleep(1)

    @property
    def bytes_per_request(self) -> float:
        """Without the first quarter, in which steps of every size come for the first time."""
        samples = self.samples[len(self.samples) // 4 :]
        return float(np.polyfit(*zip(*samples, strict=True), 1)[0])


@dataclass(frozen=True)
class Handles:
    """What a process holds of the operating system when it is idle."""

    num_fds: int
    num_threads: int


async def idle_handles(pid: int) -> Handles:
    """Once they have not changed for a second."""
    process = psutil.Process(pid)
    last, num_equal = Handles(-1, -1), 0
    async with asyncio.timeout(60):
        while num_equal < 10:
            await asyncio.sleep(0.1)
            now = Handles(process.num_fds(), process.num_threads())
            num_equal = num_equal + 1 if now == last else 0
            last = now
    return last


async def assert_idle(replica: Any, engine_url: str) -> None:
    """Nothing runs, waits or holds a block, and every request of the present api has one end."""
    names = ("stoker_engine_num_requests_running", "stoker_engine_num_requests_waiting", "stoker_engine_kv_cache_usage_ratio")
    async with asyncio.timeout(30):
        while True:
            engine = await read_metrics(engine_url)
            if not any(engine[name] for name in names):
                break
            await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        while (ends := await read_ends(replica.url)).num_requests != ends.num_ended:
            await asyncio.sleep(0.1)
    assert ends.num_requests == ends.num_ended > 0


async def fill_the_kv_cache(url: str) -> None:
    """Every block once, so that its memory is resident before anything is measured."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        for start in range(2 * NUM_BLOCKS * 16 // MAX_MODEL_LEN):
            await post(http, {"model": "smollm2", "prompt": [1000 + start] * 1000, "max_tokens": 1})


async def compile_every_product(url: str) -> None:
    """A step of each number of rows that products are computed with: oneDNN keeps half a megabyte for each."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        for num_rows in sorted({padded_rows(number) for number in range(1, MAX_MODEL_LEN)}):
            prompt = [2000 + num_rows + position for position in range(min(num_rows, MAX_MODEL_LEN - 1))]
            await post(http, {"model": "smollm2", "prompt": prompt, "max_tokens": 1})
        for num_sequences in sorted({padded_rows(number) for number in range(1, MAX_NUM_SEQS + 1)}):
            prompts = [[3000 + index] for index in range(num_sequences)]
            await post(http, {"model": "smollm2", "prompt": prompts, "max_tokens": 8, "ignore_eos": True})


@pytest.mark.property("P38", "P68")
@pytest.mark.fault("E5")
@pytest.mark.stress
@pytest.mark.parametrize("soak", SOAKS)
async def test_mixed_load_and_dying_apis_leave_nothing_behind(soak: Soak, start_replica: Callable[..., Any], free_port: Callable[[], int]) -> None:
    port = free_port()
    settings = {"dtype": "bfloat16", "max_model_len": MAX_MODEL_LEN, "num_blocks_override": NUM_BLOCKS, "health_port": port}
    settings |= {"max_num_seqs": MAX_NUM_SEQS, "max_num_batched_tokens": MAX_MODEL_LEN}
    async with start_replica(**settings) as replica:
        await fill_the_kv_cache(replica.url)
        await compile_every_product(replica.url)
        await Load(replica.url).run(asyncio.sleep(soak.seconds / 10))
        await assert_idle(replica, f"http://127.0.0.1:{port}")
        warm_engine, warm_api = await idle_handles(replica.engine.pid), await idle_handles(replica.api.pid)

        load, memory = Load(replica.url), Memory()
        watch = asyncio.create_task(memory.watch(replica.engine.pid, load))
        await load.run(kill_apis(replica, load, soak))
        watch.cancel()

        await assert_idle(replica, f"http://127.0.0.1:{port}")
        engine, api = await idle_handles(replica.engine.pid), await idle_handles(replica.api.pid)
        logger.info("%s", memory.samples[:: max(1, len(memory.samples) // 20)])
        logger.info("%s; engine %s → %s, %.0f bytes per request; api %s → %s", load.outcomes, warm_engine, engine, memory.bytes_per_request, warm_api, api)
        await replica.stop()
    assert load.outcomes["cut"] > 0
    assert engine == warm_engine
    assert api.num_fds == warm_api.num_fds and api.num_threads <= warm_api.num_threads + POOL_THREADS
    if load.num_done >= ENOUGH_REQUESTS:
        assert memory.bytes_per_request <= MAX_GROWTH_BYTES
