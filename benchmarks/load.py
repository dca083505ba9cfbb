"""A closed-loop streaming load generator for any OpenAI-compatible server: C clients, each sends its next request when the last one ended."""

import asyncio
import json
import random
import statistics
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

import msgspec

FIRST_ORDINARY_ID = 1000
"""Smaller ids are special tokens and single bytes."""
LAST_ORDINARY_ID = 40000
ERROR_BYTES = 2000


@dataclass(slots=True, frozen=True)
class Workload:
    """`num_requests` random prompts of `input_len` tokens, each answered with exactly `output_len` tokens, `concurrency` at a time."""

    num_requests: int
    concurrency: int
    input_len: int
    output_len: int
    seed: int = 0


@dataclass(slots=True, frozen=True)
class StreamTiming:
    """One answered request: seconds from sending to the first and to the last chunk, and the number of its output tokens."""

    first: float
    last: float
    num_tokens: int

    @property
    def time_per_output_token(self) -> float:
        return (self.last - self.first) / (self.num_tokens - 1)


@dataclass(slots=True, frozen=True)
class LoadResult:
    """What one run of a workload took, in seconds."""

    duration: float
    streams: list[StreamTiming]

    @property
    def output_tokens_per_second(self) -> float:
        return sum(stream.num_tokens for stream in self.streams) / self.duration

    @property
    def median_time_to_first_token(self) -> float:
        return statistics.median(stream.first for stream in self.streams)

    @property
    def median_time_per_output_token(self) -> float:
        return statistics.median(stream.time_per_output_token for stream in self.streams)


class NotReadyError(RuntimeError):
    """The server listens but cannot answer yet (503)."""


class _Usage(msgspec.Struct):
    completion_tokens: int


class _Chunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: _Usage | None = None


def random_prompts(workload: Workload) -> list[list[int]]:
    """Prompts with no common prefix, so that no server gains from its prefix cache."""
    source = random.Random(workload.seed)
    return [[source.randint(FIRST_ORDINARY_ID, LAST_ORDINARY_ID) for _ in range(workload.input_len)] for _ in range(workload.num_requests)]


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
    first = last = 0.0
    num_tokens = 0
    start = perf_counter()
    async for data in _post_events(url, "/v1/completions", body):
        chunk = msgspec.json.decode(data, type=_Chunk)
        if chunk.choices:
            last = perf_counter() - start
            first = first or last
        if chunk.usage is not None:
            num_tokens = chunk.usage.completion_tokens
    if num_tokens != output_len:
        raise RuntimeError(f"asked {url} for {output_len} tokens, got {num_tokens}")
    return StreamTiming(first, last, num_tokens)


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
