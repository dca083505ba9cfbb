"""Peers that are no engine of this api's."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
import zmq

from stoker_engine.addresses import SocketAddresses
from stoker_engine.errors import EngineDeadError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.protocol import PROTOCOL_VERSION, EngineCoreRequest, Hello, encode, engine_identity, new_incarnation
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config


async def test_an_engine_whose_place_another_took_serves_again_when_that_one_has_gone(socket_dir: str, wait_until: Callable[..., Awaitable[None]]) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[7])), zmq.Context() as context:
        await wait_until(lambda: client.is_ready)
        stranger = context.socket(zmq.DEALER)
        stranger.setsockopt(zmq.IDENTITY, engine_identity(0, new_incarnation()))
        stranger.connect(SocketAddresses(socket_dir).handshake)
        stranger.send(encode(Hello(PROTOCOL_VERSION, 1)))
        await wait_until(lambda: not client.is_ready)
        stranger.close(0)
        with pytest.raises(EngineDeadError):
            await client.get_output()
        await wait_until(lambda: client.is_ready)
        await client.add_request(EngineCoreRequest("a", [1, 2], SamplingParams(temperature=0, max_tokens=1), time.time()))
        outputs = await client.get_output()
        while not outputs.outputs:
            outputs = await client.get_output()
        assert outputs.outputs[0].new_token_ids == [7]
    await client.shutdown()


async def test_an_opening_of_an_earlier_link_that_arrives_late_changes_nothing(socket_dir: str, wait_until: Callable[..., Awaitable[None]]) -> None:
    client = AsyncMPClient(ClientConfig(socket_dir))
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[7])), zmq.Context() as context, context.socket(zmq.DEALER) as late:
        await wait_until(lambda: client.is_ready)
        late.setsockopt(zmq.LINGER, 0)
        late.connect(SocketAddresses(socket_dir).input)
        identity = client._handshake.identity
        assert identity is not None
        late.send_multipart([client.incarnation, identity, bytes(8)])
        for number in range(20):
            await client.add_request(EngineCoreRequest(str(number), [1, 2], SamplingParams(temperature=0, max_tokens=1), time.time()))
            async with asyncio.timeout(10):
                while not (await client.get_output()).outputs:
                    pass
        assert not late.poll(0)
    await client.shutdown()
