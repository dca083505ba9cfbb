"""A closed-loop streaming load generator for any OpenAI-compatible server: C clients, each sends its next request when the last one ended."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from urllib.parse import urlsplit

import msgspec

FIRST_ORDINARY_ID = 1000
"""Smaller ids are special tokens and single bytes."""
LAST_ORDINARY_ID = 40000
ERROR_BYTES = 2000


@dataclass(slots=True, frozen=True)
class Workload:
    """`num_requests` random prompts of `input_len` tokens, the first `prefix_len` the same in all, each answered with exactly `output_len` tokens,
    `concurrency` at a time. Two seeds have nothing in common.
    """

    num_requests: int
    concurrency: int
    input_len: int
    output_len: int
    seed: int = 0
    prefix_len: int = 0


@dataclass(slots=True, frozen=True)
class Objective:
    """What a request must keep to count for the goodput: seconds to its first token, and mean seconds per token after it."""

    first: float
    per_token: float


@dataclass(slots=True, frozen=True)
class StreamTiming:
    """One answered request: seconds from sending to each chunk, and the number of its output tokens."""

    chunks: tuple[float, ...]
    num_tokens: int

    @property
    def first(self) -> float:
        return self.chunks[0]

    @property
    def time_per_output_token(self) -> float:
        return (self.chunks[-1] - self.first) / (self.num_tokens - 1)

    @property
    def gaps(self) -> list[float]:
        """Between one chunk and the next."""
        return [later - earlier for earlier, later in pairwise(self.chunks)]

    def keeps(self, objective: Objective) -> bool:
        return self.first <= objective.first and self.time_per_output_token <= objective.per_token


@dataclass(slots=True, frozen=True)
class LoadResult:
    """What one run of a workload took, in seconds."""

    duration: float
    streams: list[StreamTiming]

    def metrics(self, objective: Objective) -> dict[str, float]:
        """Rates per second, times in milliseconds."""
        measured = {
            "ttft": [stream.first for stream in self.streams],
            "tpot": [stream.time_per_output_token for stream in self.streams],
            "itl": [gap for stream in self.streams for gap in stream.gaps],
        }
        percentiles = {f"{name}_p{p}": percentile(values, p) * 1000 for name, values in measured.items() for p in (50, 99)}
        return {
            "output": sum(stream.num_tokens for stream in self.streams) / self.duration,
            "requests": len(self.streams) / self.duration,
            "goodput": sum(stream.keeps(objective) for stream in self.streams) / self.duration,
            **percentiles,
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """Between the two nearest values, linearly, as numpy's default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


class NotReadyError(RuntimeError):
    """The server listens but cannot answer yet (503)."""


class _Usage(msgspec.Struct):
    completion_tokens: int


class _Chunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: _Usage | None = None


def random_prompts(workload: Workload) -> list[list[int]]:
    """Prompts that no server knows from its prefix cache, but for their common prefix. Another length is another prompt from its first token on."""
    source = random.Random(f"{workload.seed} {workload.input_len}")

    def ids(number: int) -> list[int]:
        return [source.randint(FIRST_ORDINARY_ID, LAST_ORDINARY_ID) for _ in range(number)]

    prefix = ids(workload.prefix_len)
    return [prefix + ids(workload.input_len - workload.prefix_len) for _ in range(workload.num_requests)]


async def run_load(url: str, model: str, workload: Workload) -> LoadResult:
    """Sends the workload to `url`. Raises RuntimeError with the server's words if a request fails."""
    prompts = iter(random_prompts(workload))
    streams: list[StreamTiming] = []
    start = perf_counter()
    async with asyncio.TaskGroup() as clients:
        for _ in range(workload.concurrency):
            clients.create_task(_client(url, model, prompts, workload.output_len, streams))
    return LoadResult(perf_counter() - start, streams)


async def _client(url: str, model: str, prompts: Iterator[list[int]], output_len: int, streams: list[StreamTiming]) -> None:
    for prompt in prompts:
        streams.append(await stream_completion(url, model, prompt, output_len))


async def stream_completion(url: str, model: str, prompt: list[int], output_len: int) -> StreamTiming:
    """One streamed completion of exactly `output_len` tokens at temperature 0."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_len,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks: list[float] = []
    num_tokens = 0
    start = perf_counter()
    async for data in _post_events(url, "/v1/completions", body):
        chunk = msgspec.json.decode(data, type=_Chunk)
        if chunk.choices:
            chunks.append(perf_counter() - start)
        if chunk.usage is not None:
            num_tokens = chunk.usage.completion_tokens
    if num_tokens != output_len:
        raise RuntimeError(f"asked {url} for {output_len} tokens, got {num_tokens}")
    return StreamTiming(tuple(chunks), num_tokens)


async def _post_events(url: str, path: str, body: dict[str, object]) -> AsyncIterator[bytes]:
    """The `data:` lines of a server-sent event stream, without the closing [DONE]. Lines survive chunk borders."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    try:
        writer.write(head.encode() + content)
        status = (await reader.readline()).decode("latin-1").strip()
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" not in headers or " 200 " not in status:
            kind = NotReadyError if " 503 " in status else RuntimeError
            raise kind(f"{url}{path}: {status}: {(await reader.read(ERROR_BYTES)).decode(errors='replace')}")
        rest = b""
        async for part in _chunks(reader):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                data = line.strip().removeprefix(b"data: ")
                if data.startswith(b"{"):
                    yield data
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
