import asyncio
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

NUM_STREAMS = 2000
EVENT = b"data: 1\n\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Three ends of each stream are this process's, the others its child's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * NUM_STREAMS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.stress
async def test_two_thousand_streams_at_once_all_end_and_the_gateway_answers_meanwhile(
    start_replica: Any, start: Any, wire: Any, many_files: None, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on = asyncio.Event()

    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.stream() + wire.chunk(EVENT))
        while not go_on.is_set():
            await asyncio.sleep(2)
            writer.write(wire.chunk(EVENT))
        writer.write(wire.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    replica = await start_replica(answer)
    gateway = await start(replica, log_level="info")
    port = gateway.client.base_url.port

    async def stream() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire.post(b'{"model":"m","stream":true}', "Connection: close"))
        data = await reader.read()
        writer.close()
        return data

    streams = []
    for _ in range(NUM_STREAMS):
        streams.append(asyncio.create_task(stream()))
        await asyncio.sleep(0.001)
    async with asyncio.timeout(120):
        while len(replica.requests) < NUM_STREAMS:
            await asyncio.sleep(0.1)
    seconds = []
    for _ in range(200):
        begin = time.perf_counter()
        assert (await gateway.client.get("/livez")).status_code == 200
        seconds.append(time.perf_counter() - begin)
        await asyncio.sleep(0.02)
    go_on.set()
    data = await asyncio.gather(*streams)
    assert {(each[:15], each.count(b"[DONE]"), each.endswith(b"0\r\n\r\n")) for each in data} == {(b"HTTP/1.1 200 OK", 1, True)}
    with capsys.disabled():
        sys.stdout.write(f"\n{NUM_STREAMS} streams at once, {len(seconds)} times /livez: p99 {sorted(seconds)[-3] * 1000:.1f} ms\n")
