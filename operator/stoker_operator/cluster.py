"""The few calls that the operator makes to the API server. Nothing here blocks, and every call has an end."""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from stoker_operator.cluster_kinds import ClusterKind
from stoker_operator.errors import ApiError, ClusterUnreachableError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import FIELD_MANAGER
from stoker_operator.operator_metrics import API_WRITES

REQUEST_SECONDS = 15.0
"""A connection that has gone silent ends a call after this."""

CONNECT_SECONDS = 5.0
LIST_SECONDS = 60.0
ILL_TYPED = "failed to create typed patch object"
"""How the API server refuses an apply whose fields its schema does not have. It answers with 500, though no other try can end otherwise."""
PAGE_SIZE = 500
NO_VERSION = "1"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MANAGED_BY = {"fieldManager": FIELD_MANAGER}
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a kind as they were at one moment."""

    items: list[KubeObject]
    version: int


class Cluster:
    """Objects are manifests. Raises ApiError for what the API server refuses, ClusterUnreachableError if it does not answer."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        """The operator's own."""

    @property
    def configuration(self) -> Configuration:
        """How to reach the API server, for kopf's own connections."""
        configuration: Configuration = self._client.configuration
        return configuration

    async def get(self, kind: ClusterKind, namespace: str | None, name: str) -> KubeObject | None:
        """None if there is none."""
        try:
            return await self._send(_Call("GET", kind.path(namespace, name)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: ClusterKind, namespace: str | None, *, label: str = "", fields: str = "") -> ObjectList:
        """All of a namespace (None: of the cluster) that carry `label` and have `fields`."""
        items: list[KubeObject] = []
        version = 0
        async for page in self.pages(kind, namespace, label=label, fields=fields):
            items += page.items
            version = page.version
        return ObjectList(items, version)

    async def pages(self, kind: ClusterKind, namespace: str | None, *, label: str = "", fields: str = "") -> AsyncIterator[ObjectList]:
        """The same in parts of at most PAGE_SIZE, for whoever does not keep them whole."""
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": label} if label else {}) | ({"fieldSelector": fields} if fields else {})
        while True:
            page = await self._send(_Call("GET", kind.path(namespace), query=query, seconds=LIST_SECONDS))
            items = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or ()]
            yield ObjectList(items, int(page["metadata"].get("resourceVersion") or 0))
            if not (more := page["metadata"].get("continue")):
                return
            query["continue"] = more

    async def apply(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        """Server-side apply: our fields become what `obj` says; the object as it is then."""
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        return await self._write(kind, "apply", _Call("PATCH", path, MANAGED_BY | {"force": "true"}, obj, APPLY))

    async def apply_new(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        """The same where there is no object of that name yet; ApiError 409 where there is one, which stays as it is.

        No object is at NO_VERSION, which the API server looks at only where there is one.
        """
        return await self.apply(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": NO_VERSION}})

    async def merge(self, kind: ClusterKind, namespace: str, name: str, patch: KubeObject) -> KubeObject:
        """A merge patch of a few fields."""
        return await self._write(kind, "patch", _Call("PATCH", kind.path(namespace, name), MANAGED_BY, patch, MERGE))

    async def apply_status(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        """Server-side apply of the status."""
        metadata = obj["metadata"]
        path = f"{kind.path(metadata['namespace'], metadata['name'])}/status"
        return await self._write(kind, "status", _Call("PATCH", path, MANAGED_BY | {"force": "true"}, obj, APPLY))

    async def patch_status(self, kind: ClusterKind, obj: KubeObject, operations: Sequence[KubeObject]) -> KubeObject:
        """A JSON patch of the status of this very object."""
        metadata = obj["metadata"]
        path = f"{kind.path(metadata['namespace'], metadata['name'])}/status"
        same = {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}
        return await self._write(kind, "status", _Call("PATCH", path, MANAGED_BY, [same, *operations], JSON_PATCH))

    async def create(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        return await self._write(kind, "create", _Call("POST", kind.path(obj["metadata"]["namespace"]), MANAGED_BY, obj))

    async def update(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        """Replaces an object that is still at the resourceVersion that `obj` has."""
        metadata = obj["metadata"]
        return await self._write(kind, "update", _Call("PUT", kind.path(metadata["namespace"], metadata["name"]), MANAGED_BY, obj))

    async def delete(self, kind: ClusterKind, obj: KubeObject) -> None:
        """Deletes this very object; one that has gone already is no error."""
        metadata = obj["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._write(kind, "delete", _Call("DELETE", kind.path(metadata["namespace"], metadata["name"]), body=body))
        except ApiError as error:
            if error.status != 404:
                raise

    async def serves(self, kind: ClusterKind) -> bool:
        """Whether the API server knows the kind at all."""
        try:
            served = await self._send(_Call("GET", f"/apis/{kind.group}/{kind.version}"))
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in served.get("resources") or ())

    async def _write(self, kind: ClusterKind, verb: str, call: "_Call") -> KubeObject:
        API_WRITES.labels(kind=kind.kind, verb=verb).inc()
        return await self._send(call)

    async def _send(self, call: "_Call") -> KubeObject:
        url = self._client.configuration.host + quote(call.path) + (f"?{urlencode(call.query)}" if call.query else "")
        headers = {"Accept": JSON, "User-Agent": FIELD_MANAGER, "Content-Type": call.content_type}
        timeout = aiohttp.ClientTimeout(total=call.seconds, sock_connect=CONNECT_SECONDS, sock_read=REQUEST_SECONDS)
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], call.path, call.method, call.body)
            response = await self._client.rest_client.request(call.method, url, headers=headers, body=call.body, _request_timeout=timeout)
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnreachableError(f"{call.method} {call.path}: {error or type(error).__name__}") from error
        if response.status >= 400:
            raise _api_error(call, response.status, data, response.getheader("Retry-After"))
        return _read_object(call, data)


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: KubeObject | list[KubeObject] | None = None
    content_type: str = JSON
    seconds: float = REQUEST_SECONDS


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Cluster]:
    """The cluster that we run in, else the one that the kubeconfig names ($KUBECONFIG, ~/.kube/config). Raises ClusterUnreachableError."""
    configuration = Configuration()
    try:
        namespace = await _load(configuration)
    except (kubernetes_config.ConfigException, OSError) as error:
        raise ClusterUnreachableError(f"no cluster to talk to: {error}; run in a pod, or set KUBECONFIG") from error
    configuration.connection_pool_maxsize = 32
    # A proxy stands in the kubeconfig or nowhere. Looking for one in the environment goes through a thread for each call: a fifth of its cost.
    configuration.client_session_kwargs = {"trust_env": False}
    async with ApiClient(configuration=configuration) as client:
        yield Cluster(client, namespace)


async def _load(configuration: Configuration) -> str:
    if "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT_NAMESPACE.exists():
        kubernetes_config.load_incluster_config(client_configuration=configuration)
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    await kubernetes_config.load_kube_config(client_configuration=configuration)
    _, active = kubernetes_config.list_kube_config_contexts()
    return str((active.get("context") or {}).get("namespace") or "default")


def _read_object(call: _Call, data: bytes) -> KubeObject:
    """What stands before the API server may answer 200 with anything."""
    try:
        return _decode_object(data)
    except msgspec.MsgspecError as error:
        raise ClusterUnreachableError(f"{call.method} {call.path}: the answer is no Kubernetes object: {error}") from error


def _api_error(call: _Call, status: int, data: bytes, retry_after: str | None) -> ApiError:
    """The API server's own words, where the answer has them: what stands before it may answer with anything."""
    try:
        answer = _decode(data)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        answer = {"message": data[:1024].decode(errors="replace")}
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    message = str(answer.get("message") or "")
    reason = ApiError.INVALID if message.startswith(ILL_TYPED) else str(answer.get("reason") or "")
    return ApiError(f"{call.method} {call.path}", status, reason, message, seconds)
