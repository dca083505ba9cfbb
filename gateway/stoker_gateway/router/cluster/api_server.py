"""The few calls that the gateway makes to the API server. Nothing here blocks, and every call has an end."""

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from stoker_engine.errors import ConfigError
from stoker_gateway.router.cluster.names import FIELD_MANAGER, Resource

PAGE_SIZE = 500
SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
JSON = "application/json"
APPLY = "application/apply-patch+yaml"


class ApiServerError(Exception):
    """A call came to nothing. `status` is the API server's; None where it did not answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Seconds after which a call is given up."""

    connect: float = 5.0
    silence: float = 10.0
    """Between two pieces of an answer; a watch may be silent for all its time."""
    whole: float = 60.0


TIMES = CallTimes()


@dataclass(frozen=True, slots=True)
class Query:
    """What is listed and watched: of a namespace (None: the cluster), with a label."""

    resource: Resource
    namespace: str | None = None
    label: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)

    @property
    def parameters(self) -> dict[str, str]:
        return {"labelSelector": self.label} if self.label else {}


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct):
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects as they were at one moment."""

    items: list[msgspec.Raw]
    version: str


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    content_type: str = JSON


_decode_list = msgspec.json.Decoder(_List).decode
_decode_event = msgspec.json.Decoder(WatchEvent).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class ApiServer:
    """Raises ApiServerError."""

    def __init__(self, client: ApiClient, times: CallTimes) -> None:
        self._client = client
        self._times = times

    async def list(self, query: Query) -> Listed:
        """All of it, as of now: no cache answers."""
        items: list[msgspec.Raw] = []
        parameters = {**query.parameters, "limit": str(PAGE_SIZE)}
        while True:
            call = _Call("GET", query.path, parameters)
            data = await self._read(call)
            try:
                page = _decode_list(data)
            except msgspec.MsgspecError as error:
                raise ApiServerError(f"GET {query.path}: the answer is no list of Kubernetes objects: {error}") from error
            items += page.items or ()
            if not page.metadata.continue_:
                return Listed(items, page.metadata.resource_version)
            parameters["continue"] = page.metadata.continue_

    async def watch(self, query: Query, version: str, seconds: float) -> AsyncIterator[WatchEvent]:
        """What happens after `version`. Ends after `seconds` by our own clock, since a dead connection tells nothing, or before if the API server ends it."""
        # Should we be the ones who are gone, the API server ends it a little later.
        parameters = {**query.parameters, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(math.ceil(seconds) + 1)}
        call = _Call("GET", query.path, parameters)
        deadline = asyncio.get_running_loop().time() + seconds
        # The answer may not even begin.
        timeout = aiohttp.ClientTimeout(total=seconds + self._times.silence, sock_connect=self._times.connect)
        async with self._send(call, timeout) as response:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        line = await response.content.readline()
                except TimeoutError:
                    return
                if not line:
                    return
                yield self._event(call, line)

    async def apply_status(self, resource: Resource, obj: dict[str, Any]) -> None:
        """Server-side apply: the fields of `obj` that are ours become what it says, and those that it leaves out are ours no more."""
        metadata = obj["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], "status")
        await self._read(_Call("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, obj, APPLY))

    async def create(self, resource: Resource, obj: dict[str, Any]) -> None:
        await self._read(_Call("POST", resource.path(obj["metadata"]["namespace"]), {"fieldManager": FIELD_MANAGER}, obj))

    async def _read(self, call: _Call) -> bytes:
        times = self._times
        timeout = aiohttp.ClientTimeout(total=times.whole, sock_connect=times.connect, sock_read=times.silence)
        async with self._send(call, timeout) as response:
            return await response.read()

    @contextlib.asynccontextmanager
    async def _send(self, call: _Call, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        url = self._client.configuration.host + quote(call.path) + (f"?{urlencode(call.query)}" if call.query else "")
        headers = {"Accept": JSON, "User-Agent": FIELD_MANAGER, "Content-Type": call.content_type}
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], call.path, call.method, call.body)
            answer = await self._client.rest_client.request(call.method, url, headers=headers, body=call.body, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            try:
                if response.status >= 400:
                    raise _refusal(call, response.status, await response.read())
                yield response
            finally:
                response.close()
        # ValueError: a line longer than any object may be.
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiServerError(f"{call.method} {call.path}: {error or type(error).__name__}") from error

    def _event(self, call: _Call, line: bytes) -> WatchEvent:
        try:
            event = _decode_event(line)
        except msgspec.MsgspecError as error:
            raise ApiServerError(f"watch of {call.path}: what came is no event: {error}") from error
        if event.type == "ERROR":
            raise _refusal(call, 0, bytes(event.object))
        return event


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[ApiServer]:
    """The cluster that we run in, else the one that the kubeconfig names ($KUBECONFIG, ~/.kube/config). Raises ConfigError."""
    configuration = Configuration()
    try:
        await _load(configuration)
    except (kubernetes_config.ConfigException, OSError) as error:
        raise ConfigError(f"no cluster to talk to: {error}; run in a pod, set KUBECONFIG, or name the models by --static-model") from error
    # Each namespace has watches that stay open: no number of connections is the right limit.
    configuration.connection_pool_maxsize = 0
    # A proxy stands in the kubeconfig or nowhere. Looking for one in the environment goes through a thread for each call.
    configuration.client_session_kwargs = {"trust_env": False}
    async with ApiClient(configuration=configuration) as client:
        yield ApiServer(client, TIMES)


async def _load(configuration: Configuration) -> None:
    if "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT_TOKEN.exists():
        kubernetes_config.load_incluster_config(client_configuration=configuration)
    else:
        # The library looks at $KUBECONFIG when it is imported, not now.
        await kubernetes_config.load_kube_config(config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration)


def _refusal(call: _Call, status: int, data: bytes) -> ApiServerError:
    """The API server's own words, where the answer has them: what stands before it may answer with anything."""
    try:
        said = _decode_status(data)
    except msgspec.MsgspecError:
        said = _Status(message=data[:1024].decode(errors="replace"))
    return ApiServerError(f"{call.method} {call.path}: {status or said.code} {said.reason}: {said.message}", status or said.code)
