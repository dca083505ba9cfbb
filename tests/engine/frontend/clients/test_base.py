import pytest

from stoker_engine.errors import UnsupportedClientError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig, EngineCoreClient
from stoker_engine.frontend.clients.inproc import InprocClient
from stoker_engine.frontend.clients.sync_mp import SyncMPClient
from stoker_engine.inproc_core import EngineCoreInproc
from stoker_engine.testing import Script, ScriptedExecutor, fake_engine_config


def make_core() -> EngineCoreInproc:
    return EngineCoreInproc(fake_engine_config("/unused"), ScriptedExecutor(Script()))


async def test_an_asyncio_client_of_another_process(socket_dir: str) -> None:
    client = EngineCoreClient.make_client(ClientConfig(socket_dir), multiprocess_mode=True, asyncio_mode=True)
    assert isinstance(client, AsyncMPClient)
    await client.shutdown()


def test_a_blocking_client_of_another_process(socket_dir: str) -> None:
    client = EngineCoreClient.make_client(ClientConfig(socket_dir), multiprocess_mode=True, asyncio_mode=False)
    assert isinstance(client, SyncMPClient)
    client.shutdown()


def test_a_client_of_this_process() -> None:
    client = EngineCoreClient.make_client(make_core, multiprocess_mode=False, asyncio_mode=False)
    assert isinstance(client, InprocClient)
    client.shutdown()


def test_there_is_no_asyncio_client_of_this_process() -> None:
    with pytest.raises(NotImplementedError, match="asyncio needs an engine in another process") as caught:
        EngineCoreClient.make_client(make_core, multiprocess_mode=False, asyncio_mode=True)  # type: ignore[call-overload]
    assert isinstance(caught.value, UnsupportedClientError)


def test_a_target_that_does_not_fit_the_mode_is_refused(socket_dir: str) -> None:
    with pytest.raises(ValueError, match="multiprocess_mode=False does not fit a target of type ClientConfig"):
        EngineCoreClient.make_client(ClientConfig(socket_dir), multiprocess_mode=False, asyncio_mode=False)  # type: ignore[call-overload]
