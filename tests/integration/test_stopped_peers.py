"""A peer that is stopped, not dead, costs the other one a bounded amount of memory, and in the end every request is answered."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from stoker_engine.core.output_socket import MAX_BACKLOG_BYTES
from stoker_engine.errors import EngineDeadError, EngineNotReadyError
from stoker_engine.frontend.clients import unanswered
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]

CLIENT = Path(__file__).parent / "programs" / "client.py"
NUM_REQUESTS = 150
"""Whose answers are 200 MB."""
MAX_GROWTH_BYTES = MAX_BACKLOG_BYTES + (64 << 20)


class Client:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self, word: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        said = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 30))
        assert said["word"] == word
        return said

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


async def start_client(socket_dir: str) -> Client:
    arguments = [sys.executable, str(CLIENT), socket_dir, str(NUM_REQUESTS)]
    return Client(await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE))


def request(request_id: str, num_tokens: int = 3, max_tokens: int = 2) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1] * num_tokens, SamplingParams(temperature=0, max_tokens=max_tokens), time.time())


@pytest.mark.property("P34")
async def test_an_engine_gives_up_an_api_that_is_stopped_and_the_api_learns_what_became_of_its_requests(
    socket_dir: str, free_port: Callable[[], int], pss: Callable[[int], int], wait_until: WaitUntil
) -> None:
    port = free_port()
    config = msgspec.structs.replace(fake_engine_config(socket_dir), health_port=port, max_num_batched_tokens=8192, max_num_seqs=4)
    with FakeEngineCore(config, Script(default_reply=[7], step_seconds=0.02)) as engine, httpx.Client(base_url=f"http://127.0.0.1:{port}") as probe:
        client = await start_client(socket_dir)
        try:
            await client.hear("sent")
            client.signal(signal.SIGSTOP)
            before = pss(engine.process.pid)
            sizes: list[int] = []

            def is_given_up() -> bool:
                sizes.append(pss(engine.process.pid))
                return probe.get("/readyz").status_code == 503

            await wait_until(is_given_up)
            assert max(sizes) - before <= MAX_GROWTH_BYTES
            client.signal(signal.SIGCONT)
            ended = await client.hear("ended")
            assert ended["failed"] > 0 and ended["finished"] + ended["failed"] == NUM_REQUESTS
            assert (await client.hear("served"))["token_ids"] == [7, 7]
            assert engine.process.poll() is None
        finally:
            psutil.Process(client.process.pid).kill()
            await client.process.communicate()


@pytest.mark.property("P34")
@pytest.mark.parametrize(("num_tokens", "max_requests"), [(1, 2000), (8000, 1000)])
async def test_a_stopped_engine_is_sent_only_so_much_and_every_request_is_answered(
    socket_dir: str, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch, num_tokens: int, max_requests: int
) -> None:
    # Lower than in earnest, so that a busy machine reaches them before the engine counts as unresponsive.
    monkeypatch.setattr(unanswered, "MAX_UNANSWERED_REQUESTS", 2000)
    monkeypatch.setattr(unanswered, "MAX_UNANSWERED_BYTES", 1000 * 8000)
    client = AsyncMPClient(ClientConfig(socket_dir, hang_seconds=2.0))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[7])) as engine:
        await wait_until(lambda: client.is_ready)
        engine.process.send_signal(signal.SIGSTOP)
        num_sent = 0
        with pytest.raises(EngineNotReadyError, match=r"has yet to answer \d+ requests"):
            for number in range(max_requests + 1):
                await client.add_request(request(f"r{number}", num_tokens))
                num_sent += 1
        assert max_requests * 0.9 < num_sent <= max_requests
        with pytest.raises(EngineDeadError, match="the engine is gone"):
            async with asyncio.timeout(10):
                await client.get_output()
        engine.process.send_signal(signal.SIGCONT)
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("good"))
        token_ids: list[int] = []
        async with asyncio.timeout(10):
            while len(token_ids) < 2:
                for output in (await client.get_output()).outputs:
                    token_ids += output.new_token_ids if output.request_id == "good" else []
        assert token_ids == [7, 7]
    await client.shutdown()
