import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stoker_engine.config import EngineConfig
from stoker_engine.exit_codes import ExitCode
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import EngineCoreOutput, EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]
MODES: list[dict[str, Any]] = [{"max_concurrent_batches": 4}, {"async_scheduling": True}]


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


def config(socket_dir: str, mode: dict[str, Any]) -> EngineConfig:
    return msgspec.structs.replace(fake_engine_config(socket_dir), max_num_batched_tokens=64, max_num_seqs=16, **mode)


def request(number: int, max_tokens: int) -> EngineCoreRequest:
    return EngineCoreRequest(f"r{number}", [1 + number] * (1 + 7 * number), SamplingParams(max_tokens=max_tokens), time.time())


async def outputs_until_finished(client: AsyncMPClient, request_ids: list[str]) -> dict[str, list[EngineCoreOutput]]:
    outputs: dict[str, list[EngineCoreOutput]] = {request_id: [] for request_id in request_ids}
    while not all(of_one and of_one[-1].finish_reason is not None for of_one in outputs.values()):
        for output in (await client.get_output()).outputs:
            outputs[output.request_id].append(output)
    return outputs


async def answers(client: AsyncMPClient, wait_until: WaitUntil) -> dict[str, list[int]]:
    await wait_until(lambda: client.is_ready)
    for number in range(20):
        await client.add_request(request(number, max_tokens=1 + number % 9))
    outputs = await outputs_until_finished(client, [f"r{number}" for number in range(20)])
    return {request_id: [token_id for output in of_one for token_id in output.new_token_ids] for request_id, of_one in outputs.items()}


async def test_an_engine_answers_alike_however_it_steps(socket_dir: str, wait_until: WaitUntil) -> None:
    found = []
    for mode in [{}, *MODES]:
        client = AsyncMPClient(ClientConfig(socket_dir))
        with FakeEngineCore(config(socket_dir, mode), Script()):
            found.append(await answers(client, wait_until))
        await client.shutdown()
    assert found[1:] == [found[0]] * 2


@pytest.mark.property("P53")
@pytest.mark.parametrize("mode", MODES)
async def test_a_drain_finishes_what_is_under_way(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil, mode: dict[str, Any]) -> None:
    with FakeEngineCore(config(socket_dir, mode), Script(step_seconds=0.002)) as engine:
        await wait_until(lambda: client.is_ready)
        for number in range(3):
            await client.add_request(request(number, max_tokens=40))
        first = await client.get_output()
        engine.process.send_signal(signal.SIGTERM)
        outputs = await outputs_until_finished(client, [f"r{number}" for number in range(3)])
        assert await asyncio.to_thread(engine.process.wait, 30) == ExitCode.OK
    for output in first.outputs:
        outputs[output.request_id].insert(0, output)
    assert all(sum(len(output.new_token_ids) for output in of_one) == 40 for of_one in outputs.values())


@pytest.mark.property("P34")
@pytest.mark.parametrize("mode", MODES[1:])
async def test_an_abort_of_everything_tells_each_client_and_ends_cleanly(
    socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil, mode: dict[str, Any]
) -> None:
    with FakeEngineCore(config(socket_dir, mode), Script(step_seconds=0.002)) as engine:
        await wait_until(lambda: client.is_ready)
        await client.add_request(request(1, max_tokens=5000))
        await client.get_output()
        engine.process.send_signal(signal.SIGTERM)
        engine.process.send_signal(signal.SIGINT)
        outputs = await outputs_until_finished(client, ["r1"])
        assert await asyncio.to_thread(engine.process.wait, 30) == ExitCode.OK
    assert outputs["r1"][-1].finish_reason is FinishReason.ABORT
