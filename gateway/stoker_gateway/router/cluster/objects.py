"""What is kept of InferenceDeployments and EndpointSlices. What a newer version wrote is read as far as it can be; one that cannot be read costs no other."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from stoker_gateway.router.cluster.lenient import read_settings
from stoker_gateway.router.cluster.names import HTTP_PORT_NAME, INFERENCE_DEPLOYMENT_LABEL, SERVICE_NAME_LABEL
from stoker_gateway.router.fleet_view import Address, EndpointView
from stoker_gateway.router.traffic import TrafficConfig

logger = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: datetime
    generation: int = 0
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    """Any kind's. Only of what this file reads a type is asked, where it is read."""

    metadata: _Metadata
    spec: Any = None
    status: Any = None
    ports: Any = None
    endpoints: Any = None
    address_type: Any = msgspec.field(name="addressType", default=None)


_decode = msgspec.json.Decoder(_Object).decode


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """What every object has."""

    key: tuple[str, str]
    """Namespace and name."""
    version: tuple[str, str]
    """Its uid and resourceVersion."""


@dataclass(frozen=True, slots=True)
class DeploymentObject(ClusterObject):
    """An InferenceDeployment."""

    generation: int
    created: int
    served_names: tuple[str, ...]
    replicas: int
    traffic: TrafficConfig
    conditions: tuple[Mapping[str, Any], ...]

    @property
    def uid(self) -> str:
        return self.version[0]


@dataclass(frozen=True, slots=True)
class SliceObject(ClusterObject):
    """An EndpointSlice of an InferenceDeployment's Service."""

    deployment: tuple[str, str]
    """The InferenceDeployment's namespace and name."""
    order: tuple[bool, int]
    """Of two slices that tell of one pod, the greater one is right: IPv4 rather than IPv6, and the one written last."""
    endpoints: tuple[EndpointView, ...]


def read_deployment(raw: msgspec.Raw) -> DeploymentObject | None:
    """None for what is no object at all."""
    if (obj := _read(raw)) is None:
        return None
    metadata, spec = obj.metadata, _mapping(obj.spec)
    model, replicas = _mapping(spec.get("model")), spec.get("replicas")
    served_name = model.get("servedName")
    return DeploymentObject(
        key=(metadata.namespace, metadata.name),
        version=(metadata.uid, metadata.resource_version),
        generation=metadata.generation,
        created=int(metadata.creation_timestamp.timestamp()),
        served_names=(served_name if served_name and isinstance(served_name, str) else metadata.name, *_strings(model.get("aliases"))),
        replicas=replicas if isinstance(replicas, int) and replicas >= 0 else 1,
        traffic=read_settings(TrafficConfig, spec.get("traffic")),
        conditions=tuple(each for each in _list(_mapping(obj.status).get("conditions")) if isinstance(each, Mapping)),
    )


def read_slice(raw: msgspec.Raw) -> SliceObject | None:
    """None for what is no object, or of another Service than an InferenceDeployment's own."""
    if (obj := _read(raw)) is None:
        return None
    metadata = obj.metadata
    labels = metadata.labels or {}
    owner = labels.get(INFERENCE_DEPLOYMENT_LABEL)
    if owner is None or labels.get(SERVICE_NAME_LABEL) != owner:
        return None
    port = _http_port(obj.ports) if obj.address_type in ("IPv4", "IPv6") else None
    found = () if port is None else (_endpoint(_mapping(each), port) for each in _list(obj.endpoints))
    version = metadata.resource_version
    return SliceObject(
        key=(metadata.namespace, metadata.name),
        version=(metadata.uid, version),
        deployment=(metadata.namespace, owner),
        order=(obj.address_type == "IPv4", int(version) if version.isdecimal() else 0),
        endpoints=tuple(endpoint for endpoint in found if endpoint is not None),
    )


def _read(raw: msgspec.Raw) -> _Object | None:
    try:
        return _decode(raw)
    except msgspec.MsgspecError as error:
        logger.warning("An object of the API server cannot be read and is left out: %s: %.200s", error, bytes(raw)[:200].decode(errors="replace"))
        return None


def _http_port(ports: object) -> int | None:
    for port in map(_mapping, _list(ports)):
        number = port.get("port")
        if port.get("name") == HTTP_PORT_NAME and isinstance(number, int) and 0 < number < 65536:
            return number
    return None


def _endpoint(endpoint: Mapping[str, Any], port: int) -> EndpointView | None:
    """None where it has no address (any more). All addresses of an endpoint lead to the same pod; the first is as good as any."""
    addresses = _strings(endpoint.get("addresses"))
    if not addresses:
        return None
    address = Address(addresses[0], port)
    conditions = _mapping(endpoint.get("conditions"))
    pod = _mapping(endpoint.get("targetRef")).get("name")
    # A condition that nobody reports: ready, and not terminating.
    return EndpointView(address, pod if isinstance(pod, str) else str(address), conditions.get("ready") is not False, conditions.get("terminating") is True)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: object) -> tuple[str, ...]:
    return tuple(each for each in _list(value) if each and isinstance(each, str))
