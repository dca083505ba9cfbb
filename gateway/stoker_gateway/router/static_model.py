"""StaticModel: a model and its replicas' addresses, told by a flag instead of by a cluster."""

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from stoker_engine.config import ModelName
from stoker_engine.errors import ConfigError
from stoker_engine.settings import Settings
from stoker_gateway.router.fleet_view import Address
from stoker_gateway.router.traffic import TrafficConfig

FLAG = "--static-model"

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
"""A name, or an IPv6 address, which may have a zone."""


class StaticModel(Settings, frozen=True, kw_only=True):
    """As an InferenceDeployment has it, and where its replicas listen."""

    name: Annotated[ModelName, Meta(description="Of the InferenceDeployment, or any.")]
    namespace: str = "default"
    served_name: Annotated[ModelName | None, Meta(description="Default: name.")] = None
    aliases: tuple[ModelName, ...] = ()
    traffic: TrafficConfig = TrafficConfig()
    endpoints: Annotated[tuple[str, ...], Meta(description="`host:port` of each replica; an IPv6 address stands in brackets.")] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Raises ConfigError."""
        return tuple(dict.fromkeys(parse_address(endpoint) for endpoint in self.endpoints))


def parse_static_models(values: Iterable[str]) -> tuple[StaticModel, ...]:
    """Each value is `name=host:port,host:port`, or a StaticModel as JSON. Raises ConfigError with the value and what is allowed."""
    models = tuple(_parse(value) for value in values)
    seen: set[tuple[str, str]] = set()
    for model in models:
        if (title := (model.namespace, model.name)) in seen:
            raise ConfigError(f"{FLAG}: there are two of {model.namespace}/{model.name}; give each its own name, and all endpoints of one in one flag")
        seen.add(title)
    return models


def parse_address(endpoint: str) -> Address:
    """Raises ConfigError."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(host) or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{FLAG}: {endpoint!r} is no endpoint; write host:port, without http://, with a port from 1 to 65535")
    return Address(host, int(port))


def _parse(value: str) -> StaticModel:
    if value.startswith("{"):
        try:
            model = msgspec.json.decode(value, type=StaticModel)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{FLAG}: {value[:200]!r}: {error}") from error
    else:
        name, separator, endpoints = value.partition("=")
        if not separator:
            raise ConfigError(f"{FLAG}: {value[:200]!r} has no '='; write name=host:port,host:port")
        try:
            model = msgspec.convert({"name": name, "endpoints": endpoints.split(",") if endpoints else []}, StaticModel)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{FLAG}: {value[:200]!r}: {error}") from error
    for endpoint in model.endpoints:
        parse_address(endpoint)
    return model
