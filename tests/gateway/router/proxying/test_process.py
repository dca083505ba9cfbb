import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest


async def test_a_gateway_that_is_told_to_stop_serves_until_it_drains_and_then_finishes(start_replica: Any, start: Any, wire: Any, until: Any) -> None:
    go_on = asyncio.Event()

    async def answer(request: Any, writer: Any) -> None:
        if b"stream" not in request.body:
            writer.write(wire.plain(b"{}", Date="Mon, 01 Jan 2024 00:00:00 GMT"))
            return
        writer.write(wire.stream() + wire.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(wire.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    replica = await start_replica(answer)
    gateway = await start(replica, drain_delay="1500ms")
    plain = await gateway.client.post("/v1/completions", json={"model": "m"})
    assert len(plain.headers.get_list("date")) == 1 and "2024" not in plain.headers["date"]
    stream = asyncio.create_task(gateway.client.post("/v1/completions", json={"model": "m", "stream": True}))
    await until(lambda: len(replica.requests) == 2)
    gateway.process.send_signal(signal.SIGTERM)
    while (ready := await gateway.client.get("/readyz")).status_code == 200:
        await asyncio.sleep(0.01)
    assert ready.json()["reason"] == "the gateway is leaving"
    new = await gateway.client.post("/v1/completions", json={"model": "m"})
    assert (new.status_code, new.headers["connection"]) == (200, "close")
    while (refused := await gateway.client.post("/v1/completions", json={"model": "m"})).status_code == 200:
        await asyncio.sleep(0.01)
    assert (refused.status_code, refused.json()["error"]["code"], refused.headers["retry-after"]) == (503, "draining", "1")
    assert (await gateway.client.get("/livez")).status_code == 200
    go_on.set()
    assert (await stream).text == "data: 1\n\ndata: [DONE]\n\n"
    assert await gateway.process.wait() == 0
    message = gateway.last_message
    # A further request may be under way when the drain begins.
    assert message["reason"] == "Drained" and message["inFlightAtStart"] == message["completed"] in (1, 2)


async def test_a_second_signal_ends_what_is_in_flight_with_an_error(start_replica: Any, start: Any, wire: Any, until: Any) -> None:
    async def answer(_request: Any, writer: Any) -> None:
        writer.write(wire.stream() + wire.chunk(b"data: 1\n\n"))
        await asyncio.Event().wait()

    replica = await start_replica(answer)
    gateway = await start(replica)
    async with gateway.client.stream("POST", "/v1/completions", json={"model": "m"}) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "data: 1"
        gateway.process.send_signal(signal.SIGTERM)
        while (await gateway.client.get("/readyz")).status_code == 200:
            await asyncio.sleep(0.01)
        gateway.process.send_signal(signal.SIGTERM)
        assert "gateway_stopping" in "".join([line async for line in lines])
    assert await gateway.process.wait() == 0
    message = gateway.last_message
    assert (message["reason"], message["aborted"]) == ("Aborted", 1)


@pytest.mark.parametrize(("flag", "word"), [("--static-model=m", "--static-model"), ("--drain-delay=never", "--drain-delay"), ("--no-such-flag", "--help")])
async def test_a_wrong_flag_is_one_line_and_exit_code_2(tmp_path: Path, flag: str, word: str) -> None:
    args = ("-m", "stoker_gateway.router", flag, f"--termination-message-path={tmp_path}/message")
    process = await asyncio.create_subprocess_exec(sys.executable, *args, stderr=asyncio.subprocess.PIPE)
    _, words = await process.communicate()
    assert process.returncode == 2
    assert words.count(b"\n") == 1 and word.encode() in words
