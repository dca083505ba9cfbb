"""What AsyncLLM does with requests that are cancelled in the wrong moment, or come ready made."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from stoker_engine.errors import EngineDeadError, EngineNotReadyError, ParameterError
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreRequest, PauseMode
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config
from stoker_engine.tokenizer import Tokenizer

WaitUntil = Callable[..., Awaitable[None]]

FOREVER = SamplingParams(n=3, max_tokens=5000, ignore_eos=True)
FINAL = SamplingParams(max_tokens=3, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY)


@pytest.fixture
async def llm(socket_dir: str, smollm2_tokenizer: Tokenizer, wait_until: WaitUntil) -> AsyncIterator[AsyncLLM]:
    llm = AsyncLLM(ClientConfig(socket_dir), smollm2_tokenizer, [])
    await llm.start()
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.001)):
        await wait_until(lambda: llm.is_ready)
        yield llm
    await llm.shutdown()


async def collect(llm: AsyncLLM, params: SamplingParams, prompt: EngineCoreRequest | str = "Hello", **options: object) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params, RequestOptions(request_id="mine", **options))]


async def running_in_engine(llm: AsyncLLM) -> int:
    stats = await llm.call_utility("get_scheduler_stats")
    return int(stats["num_running"] + stats["num_waiting"])


@pytest.mark.fault("D2")
async def test_children_that_were_sent_are_aborted_where_a_later_one_is_cancelled(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    send, sent, never = AsyncMPClient.add_request, list[str](), asyncio.Event()

    async def stall_at_the_third(client: AsyncMPClient, request: EngineCoreRequest) -> None:
        if len(sent) == 2:
            await never.wait()
        await send(client, request)
        sent.append(request.request_id)

    monkeypatch.setattr(AsyncMPClient, "add_request", stall_at_the_third)
    task = asyncio.create_task(collect(llm, FOREVER))
    while len(sent) < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert llm.num_requests == 0
    assert await running_in_engine(llm) == 0


@pytest.mark.fault("D2")
async def test_a_second_cancellation_does_not_keep_the_abort_from_the_engine(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    send, held = AsyncMPClient.abort_requests, asyncio.Event()
    sending = asyncio.Event()

    async def slow_abort(client: AsyncMPClient, request_ids: list[str]) -> None:
        if request_ids:
            sending.set()
            await held.wait()
        await send(client, request_ids)

    monkeypatch.setattr(AsyncMPClient, "abort_requests", slow_abort)
    generator = llm.generate("Hello", FOREVER, RequestOptions(request_id="mine"))
    await anext(generator)
    task = asyncio.create_task(generator.aclose())
    await sending.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await running_in_engine(llm) == 3
    held.set()
    while await running_in_engine(llm):
        pass
    assert llm.num_requests == 0


@pytest.mark.fault("D2")
async def test_an_error_while_sending_withdraws_what_was_sent(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    send, sent = AsyncMPClient.add_request, list[str]()

    async def fail_at_the_second(client: AsyncMPClient, request: EngineCoreRequest) -> None:
        if sent:
            raise EngineNotReadyError("draining")
        await send(client, request)
        sent.append(request.request_id)

    monkeypatch.setattr(AsyncMPClient, "add_request", fail_at_the_second)
    with pytest.raises(EngineNotReadyError, match="draining"):
        await collect(llm, FOREVER)
    assert await running_in_engine(llm) == 0


async def test_a_ready_request_brings_its_own_id_and_parameters(llm: AsyncLLM) -> None:
    ready = EngineCoreRequest("own", [1, 2], FINAL, arrival_time=0.0, trace_headers={"traceparent": "00-1"})
    (output,) = await collect(llm, FOREVER, ready)
    assert (output.request_id, output.num_output_tokens, output.trace_headers) == ("own", 3, {"traceparent": "00-1"})
    assert ready.request_id == "own"


async def test_a_ready_request_is_checked_like_any_other(llm: AsyncLLM) -> None:
    with pytest.raises(ParameterError, match="outside the vocabulary"):
        await collect(llm, FINAL, EngineCoreRequest("own", [10**6], FINAL, arrival_time=0.0))


async def test_trace_headers_come_back(llm: AsyncLLM) -> None:
    (output,) = await collect(llm, FINAL, trace_headers={"traceparent": "00-2"})
    assert output.trace_headers == {"traceparent": "00-2"}


async def test_trace_headers_reach_the_core(socket_dir: str, wait_until: WaitUntil) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        await wait_until(lambda: client.is_ready)
        await client.add_request(EngineCoreRequest("a", [1], FINAL, arrival_time=0.0, trace_headers={"traceparent": "00-3"}))
        assert (await client.get_output()).outputs[0].trace_headers == {"traceparent": "00-3"}
    await client.shutdown()


@pytest.mark.fault("B8")
async def test_health_is_told_without_asking_the_engine(socket_dir: str, smollm2_tokenizer: Tokenizer, wait_until: WaitUntil) -> None:
    llm = AsyncLLM(ClientConfig(socket_dir), smollm2_tokenizer, [])
    await llm.start()
    with pytest.raises(EngineNotReadyError, match="no engine has connected yet"):
        await llm.check_health()
    with FakeEngineCore(fake_engine_config(socket_dir), Script()) as engine:
        await wait_until(lambda: llm.is_ready)
        await llm.check_health()
        engine.process.kill()
        await wait_until(lambda: not llm.status.is_connected)
        with pytest.raises(EngineDeadError, match="the engine is gone"):
            await llm.check_health()
    await llm.shutdown()


@pytest.mark.property("P55")
@pytest.mark.fault("B5")
async def test_the_engines_end_fails_all_that_waits_for_it(socket_dir: str, smollm2_tokenizer: Tokenizer, wait_until: WaitUntil) -> None:
    llm = AsyncLLM(ClientConfig(socket_dir), smollm2_tokenizer, [])
    await llm.start()
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.001)) as engine:
        await wait_until(lambda: llm.is_ready)
        requests = [asyncio.create_task(collect(llm, FOREVER)) for _ in range(4)]
        while await running_in_engine(llm) < 12:
            pass
        call = asyncio.create_task(llm.call_utility("pause", PauseMode.WAIT))
        while not await llm.call_utility("is_paused"):
            pass
        engine.process.kill()
        results = await asyncio.wait_for(asyncio.gather(*requests, call, return_exceptions=True), 10.0)
    assert [type(result) for result in results] == [EngineDeadError] * 5
    with pytest.raises(EngineNotReadyError):
        await collect(llm, FINAL)
    with pytest.raises(EngineNotReadyError):
        await llm.call_utility("is_paused")
    assert llm.num_requests == 0
    await llm.shutdown()
