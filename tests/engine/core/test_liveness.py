"""Peers that hang, are stopped or come twice: what each end does about the other."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from stoker_engine.addresses import SocketAddresses
from stoker_engine.config import EngineConfig, LifecycleConfig
from stoker_engine.errors import EngineDeadError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.engine_status import EngineState
from stoker_engine.protocol import (
    PROTOCOL_VERSION,
    ClientHeartbeat,
    EngineCoreOutput,
    EngineCoreRequest,
    EngineCoreRequestType,
    EngineHandshakeMetadata,
    EnginePhase,
    Heartbeat,
    Hello,
    PhaseReport,
    decode_engine_handshake,
    encode,
    engine_identity,
    new_incarnation,
)
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

WaitUntil = Callable[..., Awaitable[None]]


@pytest.fixture
async def client(socket_dir: str) -> AsyncIterator[AsyncMPClient]:
    client = AsyncMPClient(ClientConfig(socket_dir))
    yield client
    await client.shutdown()


def request(request_id: str, *, max_tokens: int = 4) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [1, 2, 3], SamplingParams(temperature=0, max_tokens=max_tokens), time.time())


async def outputs_until_finished(client: AsyncMPClient, request_id: str) -> dict[str, list[EngineCoreOutput]]:
    """What has not been asked for is passed over."""
    mine: list[EngineCoreOutput] = []
    while not mine or mine[-1].finish_reason is None:
        mine += [output for output in (await client.get_output()).outputs if output.request_id == request_id]
    return {request_id: mine}


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


@pytest.mark.fault("B2")
@pytest.mark.case("C067")
async def test_a_stopped_engine_is_unresponsive_until_it_goes_on(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6], step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 50)
        engine.process.send_signal(signal.SIGSTOP)
        await wait_until(lambda: client.status.state is EngineState.UNRESPONSIVE, 5.0)
        assert not client.is_ready
        engine.process.send_signal(signal.SIGCONT)
        await wait_until(lambda: client.is_ready, 2.0)
        outputs = await outputs_until_finished(client, "a")
        assert outputs["a"][-1].finish_reason is FinishReason.LENGTH


@pytest.mark.fault("B7")
async def test_the_requests_of_a_silent_engine_are_given_up_and_it_serves_again_once_it_speaks(socket_dir: str, wait_until: WaitUntil) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir, hang_seconds=1.5))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[6], step_seconds=0.01)) as engine:
        await begin_a_request(client, wait_until, 8000)
        engine.process.send_signal(signal.SIGSTOP)
        with pytest.raises(EngineDeadError, match="not been heard of"):
            while True:
                await client.get_output()
        engine.process.send_signal(signal.SIGCONT)
        await wait_until(lambda: client.is_ready, 5.0)
        stats = await client.call_utility("get_scheduler_stats")
        assert (stats["num_running"], stats["num_waiting"]) == (0, 0)
        await client.add_request(request("b"))
        assert token_ids((await outputs_until_finished(client, "b"))["b"]) == [6] * 4
        await client.shutdown()


@pytest.mark.fault("B2", "B8")
async def test_heartbeats_go_on_during_a_long_step(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(hang_at_step=1)):
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a"))
        await wait_until(lambda: client.status.heartbeat is not None and client.status.heartbeat.step_age > 1.0, 10.0)
        assert client.status.silence < 2.0


@pytest.mark.fault("B2", "B7")
async def test_a_step_that_hangs_ends_the_engine_with_code_70(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config(socket_dir, engine_hang_timeout="500ms"), Script(hang_at_step=2)) as engine:
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a"))
        with pytest.raises(EngineDeadError):
            while True:
                await client.get_output()
        assert await exit_code(engine) == ExitCode.ENGINE_DEAD
    assert termination(socket_dir)["reason"] == "EngineHung"


@pytest.mark.case("C068")
async def test_an_engine_that_works_slowly_is_left_alone(socket_dir: str, client: AsyncMPClient, wait_until: WaitUntil) -> None:
    with FakeEngineCore(config(socket_dir, engine_hang_timeout="2s"), Script(default_reply=[6], step_seconds=0.3)):
        await wait_until(lambda: client.is_ready)
        await client.add_request(request("a", max_tokens=10))
        outputs = await outputs_until_finished(client, "a")
        assert outputs["a"][-1].finish_reason is FinishReason.LENGTH


@asynccontextmanager
async def bound_sockets(socket_dir: str) -> AsyncIterator[Any]:
    """Handshake and input sockets of an api that says only what the test makes it say."""
    addresses = SocketAddresses(socket_dir)
    with zmq.asyncio.Context() as context:
        sockets = [context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PULL)]
        for bound, address in zip(sockets, (addresses.handshake, addresses.input, addresses.output), strict=True):
            bound.linger = 0
            bound.bind(address)
        yield sockets
        for bound in sockets:
            bound.close()


async def next_message(handshake: Any, kind: type) -> Any:
    """The engine's next message of this kind, and its identity."""
    while True:
        identity, body = await asyncio.wait_for(handshake.recv_multipart(), 10)
        if isinstance(message := decode_engine_handshake(body), kind):
            return identity, message


async def test_the_requests_of_a_silent_api_are_aborted_and_it_is_greeted_anew_once_it_speaks(socket_dir: str) -> None:
    script = Script(step_seconds=0.01)
    async with bound_sockets(socket_dir) as (handshake, inputs, _outputs):
        with FakeEngineCore(config(socket_dir, engine_hang_timeout="1500ms"), script):
            identity, _ = await next_message(handshake, Hello)
            mine = new_incarnation()
            await handshake.send_multipart([identity, encode(EngineHandshakeMetadata(PROTOCOL_VERSION, mine))])
            route, _, _, _ = await inputs.recv_multipart()
            await inputs.send_multipart([route, mine, EngineCoreRequestType.ADD.value, encode(request("a", max_tokens=8000))])
            while not (await next_message(handshake, Heartbeat))[1].num_requests:
                await handshake.send_multipart([identity, encode(ClientHeartbeat())])
            while (await next_message(handshake, Heartbeat))[1].num_requests:
                continue
            await handshake.send_multipart([identity, encode(ClientHeartbeat())])
            assert (await next_message(handshake, Hello))[0] == identity


class ScriptedHandshake:
    """An engine's end of the handshake link, said by hand."""

    def __init__(self, context: Any, socket_dir: str) -> None:
        self.identity = engine_identity(0, new_incarnation())
        self.dealer = context.socket(zmq.DEALER)
        self.dealer.identity = self.identity
        self.dealer.linger = 0
        self.dealer.connect(SocketAddresses(socket_dir).handshake)

    async def say(self, message: Any) -> None:
        await self.dealer.send(encode(message))


@pytest.fixture
async def engines(socket_dir: str) -> AsyncIterator[list[ScriptedHandshake]]:
    with zmq.asyncio.Context() as context:
        engines = [ScriptedHandshake(context, socket_dir) for _ in range(2)]
        yield engines
        for engine in engines:
            engine.dealer.close()


@pytest.mark.fault("A4")
async def test_the_newest_hello_wins_and_the_older_engine_is_heard_no_more(
    client: AsyncMPClient, engines: list[ScriptedHandshake], wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = engines
    await old.say(Hello(PROTOCOL_VERSION, 1))
    await wait_until(lambda: client.status.phase is EnginePhase.STARTING)
    await new.say(Hello(PROTOCOL_VERSION, 2))
    await new.say(PhaseReport(EnginePhase.PROFILING, 0.5))
    await wait_until(lambda: client.status.phase is EnginePhase.PROFILING)
    for _ in range(3):
        await old.say(PhaseReport(EnginePhase.LOADING, 0.1))
    await new.say(PhaseReport(EnginePhase.WARMING_UP, 0.7))
    await wait_until(lambda: client.status.phase is EnginePhase.WARMING_UP)
    await wait_until(lambda: caplog.text.count("another engine has taken the place of the one that sent it") == 1)


async def test_an_engine_of_another_protocol_is_told_apart(client: AsyncMPClient, engines: list[ScriptedHandshake], wait_until: WaitUntil) -> None:
    await engines[0].say(Hello(PROTOCOL_VERSION + 1, 1))
    await wait_until(lambda: client.status.phase is EnginePhase.FAILED)
    assert client.status.message == f"protocol {PROTOCOL_VERSION + 1}, the api speaks {PROTOCOL_VERSION}"


@pytest.mark.fault("B7")
@pytest.mark.case("C067")
async def test_an_engine_that_computes_nothing_of_its_work_is_given_up_and_taken_back_when_it_goes_on(
    socket_dir: str, engines: list[ScriptedHandshake], wait_until: WaitUntil
) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir, hang_seconds=1.0))
    engine = engines[0]
    await engine.say(Hello(PROTOCOL_VERSION, 1))
    await wait_until(lambda: client.status.phase is EnginePhase.STARTING)
    seen = set()
    async with asyncio.timeout(20):
        while client.status.state is not EngineState.HUNG:
            await engine.say(Heartbeat(num_steps=7, loop_age=0.2, step_age=0.0, num_requests=2))
            await asyncio.wait([asyncio.ensure_future(engine.dealer.poll(100))])
            seen.add(client.status.state)
    assert seen <= {EngineState.LOADING, EngineState.HUNG}
    await wait_until(lambda: "it has computed nothing of its work for" in client.status.message)
    await engine.say(Heartbeat(num_steps=7, loop_age=5.0, step_age=5.0, num_requests=2))
    await engine.say(Heartbeat(num_steps=8, loop_age=0.1, step_age=0.0, num_requests=0))
    await wait_until(lambda: client.status.state is EngineState.LOADING)
    await client.shutdown()
