"""Bodies damaged byte by byte: never a 5xx, never a dead engine, and a good request in between is answered rightly."""

import http.client
import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0.5}),
    (CHAT, {"messages": [{"role": "system", "content": "é😀"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}], "max_tokens": 2, "n": 2}),
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 2, "logprobs": True, "top_logprobs": 3, "stream": True}),
    (COMPLETION, {"prompt": "hi", "max_tokens": 3, "stop": ["a", "b"], "seed": 7, "top_p": 0.9, "top_k": 5, "min_p": 0.1}),
    (COMPLETION, {"prompt": [1, 2, 3], "max_tokens": 2, "logprobs": 2, "prompt_logprobs": 1, "echo": True, "logit_bias": {"5": 1.5}}),
    (COMPLETION, {"prompt": ["a", "b"], "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}, "presence_penalty": 1.0}),
]
TOKENS = [b"null", b"true", b"-1", b"1e999", b"NaN", b"99999999999999999999", b'""', b"[]", b"{}", b'"\\ud800"', b"\xff", b"\x00", b"[" * 3000, b'{"a":' * 500]
BODIES_PER_ROUND = 100
NUM_CONNECTIONS = 8
MAX_GROWTH_BYTES = 1024
"""Per body, once warm."""


def damaged(random_: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(random_.choice([1, 1, 1, 2, 4])):
        at = random_.randrange(len(data))
        match random_.randrange(6):
            case 0:
                data[at] ^= 1 << random_.randrange(8)
            case 1:
                del data[at : at + random_.randrange(1, 10)]
            case 2:
                data[at:at] = random_.choice(TOKENS)
            case 3:
                end = random_.randrange(at, len(data))
                data[at:at] = data[at:end]
            case 4:  # a whole value, so that what is left is JSON
                values = [place for place, byte in enumerate(data) if byte == ord(":")]
                if values:
                    start = random_.choice(values) + 1
                    ends = [place for place in range(start, len(data)) if data[place] in b",}"]
                    data[start : ends[0] if ends else len(data)] = random_.choice(TOKENS)
            case _:
                data[at:] = b""
        data = data or bytearray(b"x")
    return bytes(data)


class Fuzzer:
    """One connection to the api at a time for each thread."""

    def __init__(self, api: Any) -> None:
        self._port = api.port
        self._local = threading.local()
        self._bodies = [(path, json.dumps({"model": "m", **body}).encode()) for path, body in BODIES]

    def send_damaged(self, seed: int) -> None:
        random_ = random.Random(seed)
        path, body = random_.choice(self._bodies)
        self._check(path, damaged(random_, body))

    def _check(self, path: str, body: bytes) -> None:
        status, text = self._post(path, body)
        assert status in (200, 400, 404), (status, body, text)
        if status != 200:
            assert json.loads(text)["error"]["message"]

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.will_close:
            connection.close()
        return response.status, text

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()


def fuzz(api: Any, num_bodies: int, on_round: Callable[[int], None]) -> None:
    expected = api.complete("good", max_tokens=4, temperature=0)["choices"][0]["text"]
    fuzzer = Fuzzer(api)
    with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        for done in range(0, num_bodies, BODIES_PER_ROUND):
            for _ in pool.map(fuzzer.send_damaged, range(done, done + BODIES_PER_ROUND)):
                pass
            assert api.complete("good", max_tokens=4, temperature=0)["choices"][0]["text"] == expected
            on_round(done)
        barrier = threading.Barrier(NUM_CONNECTIONS)
        for _ in pool.map(lambda _: (barrier.wait(10), fuzzer.close()), range(NUM_CONNECTIONS)):
            pass
    assert api.status("/readyz") == 200 and api.process.poll() is None and api.engine.process.poll() is None


def pss(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


def test_damaged_bodies_are_answered(api: Any) -> None:
    fuzz(api, 300, lambda _: None)


@pytest.mark.stress
def test_a_hundred_thousand_damaged_bodies_are_answered_and_nothing_grows(api: Any) -> None:
    processes = {"api": api.process.pid, "engine": api.engine.process.pid}
    samples: dict[str, list[tuple[int, int]]] = {name: [] for name in processes}

    def sample(done: int) -> None:
        for name, pid in processes.items():
            samples[name].append((done, pss(pid)))

    fuzz(api, 100_000, sample)
    slopes = {name: float(np.polyfit(*zip(*points[len(points) // 3 :], strict=True), 1)[0]) for name, points in samples.items()}
    assert max(slopes.values()) <= MAX_GROWTH_BYTES, slopes
