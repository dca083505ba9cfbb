import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from stoker_engine.addresses import SocketAddresses
from stoker_engine.config import EngineConfig, LifecycleConfig
from stoker_engine.errors import EngineDeadError, EngineGenerateError, EngineNotReadyError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import (
    PROTOCOL_VERSION,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    EngineHandshakeMetadata,
    EnginePhase,
    Hello,
    decode_engine_handshake,
    encode,
    new_incarnation,
)
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.serialization import MessageDecoder
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


def request(request_id: str, *, max_tokens: int = 4) -> EngineCoreRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return EngineCoreRequest(request_id, [1, 2, 3], params, time.time())


async def outputs_until_finished(client: AsyncMPClient, *request_ids: str) -> dict[str, list[EngineCoreOutput]]:
    outputs: dict[str, list[EngineCoreOutput]] = {request_id: [] for request_id in request_ids}
    while not all(of_one and of_one[-1].finish_reason is not None for of_one in outputs.values()):
        for output in (await client.get_output()).outputs:
            outputs[output.request_id].append(output)
    return outputs


async def begin_a_request(client: AsyncMPClient, wait_until: WaitUntil, max_tokens: int) -> None:
    """Request "a", whose first token has come."""
    await wait_until(lambda: client.is_ready)
    await client.add_request(request("a", max_tokens=max_tokens))
    await client.get_output()


def token_ids(outputs: list[EngineCoreOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.new_token_ids]


def config(socket_dir: str, **lifecycle: str) -> EngineConfig:
    return msgspec.structs.replace(fake_engine_config(socket_dir), lifecycle=LifecycleConfig(**lifecycle))


def termination(socket_dir: str) -> dict[str, object]:
    return json.loads(Path(socket_dir, "engine-termination.json").read_text())


async def exit_code(engine: FakeEngineCore) -> int:
    return await asyncio.to_thread(engine.process.wait, 30)


async def test_a_request_travels_to_the_engine_and_its_tokens_come_back(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[7, 8, 9])):
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a"))
        outputs = await outputs_until_finished(client, "a")
    assert token_ids(outputs["a"]) == [7, 8, 9, 9]
    assert outputs["a"][-1].finish_reason is FinishReason.LENGTH


async def test_the_engine_may_start_before_its_api(socket_dir: str, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()) as engine:
        # It has started its handshake thread, and others, once it has more than one.
        await wait_until(lambda: len(list(Path(f"/proc/{engine.process.pid}/task").iterdir())) > 2)
        late = AsyncMPClient(ClientConfig(socket_dir))
        await wait_until(lambda: late.is_ready)
        await late.shutdown()


async def test_the_api_hears_of_loading_and_its_progress_before_the_engine_is_ready(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(load_seconds=1.0)):
        await wait_until(lambda: client.status.phase is EnginePhase.LOADING and 0.0 < client.status.progress < 1.0)
        with pytest.raises(EngineNotReadyError, match="the engine is loading"):
            await client.add_request(request("early"))
        await wait_until(lambda: client.is_ready)


@pytest.mark.property("P56")
@pytest.mark.fault("A2", "A5")
async def test_a_failing_load_tells_its_own_words_to_the_api_and_in_the_termination_message(
    socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil
) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(load_error="tensor model.norm.weight is missing")) as engine:
        assert await exit_code(engine) == ExitCode.MODEL_LOAD_FAILED
        await wait_until(lambda: client.status.phase is EnginePhase.FAILED)
    assert client.status.message == "tensor model.norm.weight is missing"
    assert termination(socket_dir)["reason"] == "ModelLoadFailed"
    assert termination(socket_dir)["lastError"] == "tensor model.norm.weight is missing"


@pytest.mark.fault("A1", "A3")
async def test_a_start_that_takes_too_long_ends_with_code_3_and_names_the_phase(socket_dir: str, client: AsyncMPClient) -> None:
    with FakeEngineCore(config(socket_dir, startup_timeout="2s"), Script(load_seconds=60)) as engine:
        assert await exit_code(engine) == ExitCode.STARTUP_TIMEOUT
    words = str(termination(socket_dir)["lastError"])
    assert words.startswith("not ready after 2s (startupTimeout): in phase loading (") and words.endswith("; an api is connected")


@pytest.mark.fault("A6")
@pytest.mark.case("C072")
async def test_sigterm_while_loading_ends_the_engine_at_once(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(load_seconds=60)) as engine:
        await wait_until(lambda: client.status.phase is EnginePhase.LOADING)
        engine.process.terminate()
        assert await exit_code(engine) == ExitCode.OK
    assert termination(socket_dir)["reason"] == "Aborted"


@pytest.mark.property("P50", "P54", "P55")
@pytest.mark.fault("B5")
async def test_killing_the_engine_fails_what_it_ran_within_a_second(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 5000)
        call = asyncio.create_task(client.call_utility("get_scheduler_stats"))
        engine.process.kill()
        with pytest.raises(EngineDeadError):
            async with asyncio.timeout(1):
                while True:
                    await client.get_output()
        await asyncio.wait([call], timeout=1)
        assert call.done()
        with pytest.raises(EngineNotReadyError):
            await client.add_request(request("b"))


@pytest.mark.case("C065")
async def test_a_restarted_engine_serves_the_same_api(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()) as engine:
        await wait_until(lambda: client.is_ready)
        engine.process.kill()
        await wait_until(lambda: not client.is_ready, 1.0)
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[5])):
        with pytest.raises(EngineDeadError):
            await client.get_output()
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("b"))
        assert token_ids((await outputs_until_finished(client, "b"))["b"]) == [5, 5, 5, 5]


@pytest.mark.fault("B1")
@pytest.mark.case("C070")
async def test_a_new_api_gets_the_engine_free_of_the_old_ones_requests(socket_dir: str, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.005)):
        first = AsyncMPClient(ClientConfig(socket_dir))
        await wait_until(lambda: first.is_ready)
        await first.add_request(request("old", max_tokens=8000))
        await first.get_output()
        await first.shutdown()
        second = AsyncMPClient(ClientConfig(socket_dir))
        await wait_until(lambda: second.is_ready)
        stats = await second.call_utility("get_scheduler_stats")
        assert (stats["num_running"], stats["num_waiting"], stats["kv_cache_usage"]) == (0, 0, 0.0)
        await second.add_request(request("new"))
        outputs = await outputs_until_finished(second, "new")
        assert set(outputs) == {"new"}
        await second.shutdown()


@pytest.mark.property("P53")
@pytest.mark.fault("D20")
async def test_sigterm_lets_requests_in_flight_finish_and_refuses_new_ones(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6], step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 100)
        engine.process.terminate()
        await wait_until(lambda: client.status.is_draining)
        with pytest.raises(EngineNotReadyError, match="draining"):
            await client.add_request(request("late"))
        outputs = await outputs_until_finished(client, "a")
        assert outputs["a"][-1].finish_reason is FinishReason.LENGTH
        assert await exit_code(engine) == ExitCode.OK
    message = termination(socket_dir)
    assert (message["reason"], message["inFlightAtStart"], message["completed"], message.get("aborted", 0)) == ("Drained", 1, 1, 0)


@pytest.mark.property("P53")
@pytest.mark.fault("F5")
@pytest.mark.parametrize("drain_timeout", ["0s", "300ms"])
async def test_what_a_drain_cannot_finish_ends_as_aborted(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil, drain_timeout: str) -> None:
    with FakeEngineCore(config(socket_dir, drain_timeout=drain_timeout), Script(step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 5000)
        engine.process.terminate()
        outputs = await outputs_until_finished(client, "a")
        assert outputs["a"][-1].finish_reason is FinishReason.ABORT
        assert await exit_code(engine) == ExitCode.OK
    message = termination(socket_dir)
    assert (message["reason"], message["inFlightAtStart"], message["aborted"]) == ("Aborted", 1, 1)


@pytest.mark.fault("F8")
async def test_a_second_sigterm_aborts_a_drain(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 5000)
        engine.process.terminate()
        await wait_until(lambda: client.status.is_draining)
        engine.process.terminate()
        outputs = await outputs_until_finished(client, "a")
        assert outputs["a"][-1].finish_reason is FinishReason.ABORT
        assert await exit_code(engine) == ExitCode.OK


async def test_sigterm_with_no_api_ends_the_engine_at_once(socket_dir: str, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.01)) as engine:
        client = AsyncMPClient(ClientConfig(socket_dir))
        await begin_a_request(client, wait_until, 5000)
        await client.shutdown()
        engine.process.terminate()
        assert await exit_code(engine) == ExitCode.OK


@pytest.mark.fault("B1")
async def test_the_end_of_the_supervisor_ends_the_engine(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()) as engine:
        await wait_until(lambda: client.is_ready)
        engine.abandon()
        assert await exit_code(engine) == ExitCode.OK


async def test_a_supervisors_pipe_may_be_non_blocking(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()) as engine:
        os.set_blocking(engine.supervisor.read_end, False)
        await wait_until(lambda: client.is_ready)
        assert engine.process.poll() is None
        engine.abandon()
        assert await exit_code(engine) == ExitCode.OK


async def test_a_crash_in_a_step_is_told_and_ends_the_engine_with_code_1(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(crash_at_step=3)) as engine:
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a", max_tokens=100))
        with pytest.raises(EngineDeadError):
            while True:
                await client.get_output()
        assert await exit_code(engine) == ExitCode.FAILED
    assert "the script crashes in step 3" in str(termination(socket_dir)["lastError"])


@pytest.mark.fault("B11")
async def test_a_failing_request_ends_alone(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6], failing_token_id=3)):
        await wait_until(lambda: client.is_ready)
        neighbour = request("good", max_tokens=5)
        neighbour.prompt_token_ids = [1, 2]
        await client.add_request(neighbour)
        await client.add_request(request("bad"))
        outputs = await outputs_until_finished(client, "good", "bad")
    assert outputs["bad"][-1].finish_reason is FinishReason.ERROR
    assert outputs["bad"][-1].failure_message == "the script fails this request"
    assert token_ids(outputs["good"]) == [6] * 5


@pytest.mark.fault("C8")
async def test_a_duplicate_request_id_fails_the_newcomer_alone(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6], step_seconds=0.02)):
        await begin_a_request(client, wait_until, 20)
        await client.add_request(request("a", max_tokens=20))
        seen: list[EngineCoreOutput] = []
        while sum(output.finish_reason is not None for output in seen) < 2:
            seen += (await client.get_output()).outputs
    assert [output.finish_reason for output in seen if output.finish_reason is not None] == [FinishReason.ERROR, FinishReason.LENGTH]
    assert sum(len(output.new_token_ids) for output in seen) == 19


@pytest.mark.property("P36")
async def test_an_abort_frees_a_request_and_unknown_ids_change_nothing(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.005)):
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a", max_tokens=5000))
        await client.add_request(request("b", max_tokens=5000))
        await client.abort_requests(["a", "b", "unknown"])
        await client.abort_requests(["a"])
        stats = await client.call_utility("get_scheduler_stats")
        assert (stats["num_running"], stats["num_waiting"], stats["kv_cache_usage"]) == (0, 0, 0.0)


@pytest.mark.property("P50")
@pytest.mark.fault("B9")
async def test_only_listed_utility_methods_can_be_called(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script()):
        await wait_until(lambda: client.is_ready)
        assert await client.call_utility("reset_prefix_cache") is True
        with pytest.raises(EngineGenerateError, match="abort_all_requests failed: it is no utility method"):
            await client.call_utility("abort_all_requests")
        with pytest.raises(EngineGenerateError, match="call to reset_prefix_cache failed"):
            await client.call_utility("reset_prefix_cache", 1, 2)


@pytest.mark.property("P52")
@pytest.mark.fault("B4")
async def test_malformed_frames_are_dropped_and_the_engine_goes_on(socket_dir: str) -> None:
    addresses = SocketAddresses(socket_dir)
    mine = new_incarnation()
    quiet = msgspec.structs.replace(fake_engine_config(socket_dir), log_level="error")
    with zmq.asyncio.Context() as context, FakeEngineCore(quiet, Script(default_reply=[6])):
        handshake, inputs, outputs = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER), context.socket(zmq.PULL)
        for socket, address in ((handshake, addresses.handshake), (inputs, addresses.input), (outputs, addresses.output)):
            socket.linger = 0
            socket.bind(address)
        identity, hello = await handshake.recv_multipart()
        assert isinstance(decode_engine_handshake(hello), Hello)
        for junk in (b"", b"\xc1", b"\x90", encode(["init", "one", 2])):
            await handshake.send_multipart([identity, junk])
        await handshake.send_multipart([identity, encode(EngineHandshakeMetadata(PROTOCOL_VERSION, mine))])
        route, client, engine, _number = await inputs.recv_multipart()
        assert (client, engine) == (mine, identity)
        add = EngineCoreRequestType.ADD.value
        for frames in ([b""], [mine], [mine, add], [mine, add, b"\xc1"], [mine, b"\x09", b"\x90"], [new_incarnation(), add, b"\x90"], [b"x"] * 7):
            await inputs.send_multipart([route, *frames])
        await inputs.send_multipart([route, mine, add, encode(request("a", max_tokens=1))])
        incarnation, sender, body = await outputs.recv_multipart()
        assert (incarnation, sender) == (mine, identity)
        assert MessageDecoder(EngineCoreOutputs).decode([body]).outputs[0].new_token_ids == [6]
        for socket in (handshake, inputs, outputs):
            socket.close()


@pytest.mark.property("P52")
@pytest.mark.fault("A4", "B12")
async def test_stray_peers_on_every_socket_change_nothing(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    addresses = SocketAddresses(socket_dir)
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6])), zmq.Context() as context:
        await wait_until(lambda: client.is_ready)
        for address, kind in ((addresses.handshake, zmq.DEALER), (addresses.input, zmq.DEALER), (addresses.output, zmq.PUSH)):
            stray = context.socket(kind)
            stray.connect(address)
            for frames in ([b""], [b"garbage"], [b"a", b"b", b"c"], [client.incarnation, b"b", b"c"], [b"\x93" * 40]):
                stray.send_multipart(frames)
            stray.close(1000)
        await client.add_request(request("a"))
        assert token_ids((await outputs_until_finished(client, "a"))["a"]) == [6] * 4
        assert client.is_ready
