"""An InferenceDeployment → the configurations and commands of its replicas' processes. Pure: nothing is looked up and nothing is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker_engine.config import EngineConfig, EngineSettings, ModelConfig, seconds
from stoker_engine.settings import Settings, to_command
from stoker_gateway.api.config import ApiConfig, ApiSettings
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.static_model import StaticModel
from stoker_operator.names import API, API_MODULE, ENGINE, ENGINE_MODULE, GATEWAY, GATEWAY_MODULE, HEALTH_PORT, local_title, termination_path
from stoker_operator.pod_spec_types import EnvVar
from stoker_operator.references import expand
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment

PVC_SCHEME = "pvc://"
PVC_MOUNT = "/models"
"""Where both containers see the claim of a pvc:// model."""

STOP_SECONDS = 15.0
"""After the drain: abort what is left, flush the replies, stop the engine."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a replica runs on this machine: all that its processes are told and those of a pod are not."""

    socket_dir: str
    host: str
    port: int
    health_port: int
    supervisor_fd: int


@dataclass(frozen=True, slots=True)
class GatewayPlacement:
    """Where the gateway runs on this machine; `directory` takes its termination message."""

    directory: str
    host: str
    port: int
    supervisor_fd: int


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One process. `component` is api, engine or gateway; `environment` comes on top of our own."""

    component: str
    command: tuple[str, ...]
    termination_path: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """An api and its engine. `title` names the InferenceDeployment in lines and tables; `grace` is in seconds, from a request to stop to SIGKILL."""

    title: str
    index: int
    served_name: str
    host: str
    port: int
    grace: float
    api: ProgramPlan
    engine: ProgramPlan

    @property
    def name(self) -> str:
        return f"{self.title}/{self.index}"

    @property
    def url(self) -> str:
        """The api's address for people and clients on this machine."""
        return f"http://{_reachable(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """The gateway before all replicas; `grace` as theirs."""

    host: str
    port: int
    grace: float
    program: ProgramPlan

    @property
    def url(self) -> str:
        return f"http://{_reachable(self.host, self.port)}"


def engine_config(deployment: InferenceDeployment) -> EngineConfig:
    """What every engine of `deployment` is told, in a pod and here."""
    spec = deployment.spec
    return EngineConfig(model=_model(deployment), lifecycle=spec.lifecycle, health_port=HEALTH_PORT, **_settings(EngineSettings, spec.engine))


def api_config(deployment: InferenceDeployment) -> ApiConfig:
    """What every api of `deployment` is told, in a pod and here."""
    spec = deployment.spec
    return ApiConfig(model=_model(deployment), lifecycle=spec.lifecycle, **_settings(ApiSettings, spec.api))


def pod_model_uri(uri: str) -> str:
    """The model's address inside a pod's containers: a claim's files are below PVC_MOUNT, every other address is the same everywhere."""
    return f"file://{PVC_MOUNT}/{uri.removeprefix(PVC_SCHEME).partition('/')[2]}".rstrip("/") if uri.startswith(PVC_SCHEME) else uri


def model_claim(uri: str) -> str | None:
    """The PersistentVolumeClaim that a pvc:// model is in; None for every other model."""
    return uri.removeprefix(PVC_SCHEME).partition("/")[0] if uri.startswith(PVC_SCHEME) else None


def plan_replica(deployment: InferenceDeployment, index: int, placement: Placement) -> ReplicaPlan:
    """The processes of one replica on this machine: a pod's arguments, and where `placement` differs."""
    api_termination = termination_path(placement.socket_dir, API)
    engine_termination = termination_path(placement.socket_dir, ENGINE)
    local: dict[str, Any] = {"socket_dir": placement.socket_dir, "supervisor_fd": placement.supervisor_fd}
    api = msgspec.structs.replace(api_config(deployment), host=placement.host, port=placement.port, termination_message_path=api_termination, **local)
    health: dict[str, Any] = {"health_host": placement.host, "health_port": placement.health_port}
    engine = msgspec.structs.replace(engine_config(deployment), termination_message_path=engine_termination, **health, **local)
    return ReplicaPlan(
        title=_title(deployment),
        index=index,
        served_name=deployment.served_name,
        host=placement.host,
        port=placement.port,
        grace=seconds(deployment.spec.lifecycle.drain_timeout) + STOP_SECONDS,
        api=_program(API, to_command(API_MODULE, api), api_termination, deployment.spec.api),
        engine=_program(ENGINE, to_command(ENGINE_MODULE, engine), engine_termination, deployment.spec.engine),
    )


def plan_gateway(deployments: Sequence[InferenceDeployment], replicas: Sequence[ReplicaPlan], placement: GatewayPlacement) -> GatewayPlan:
    """The gateway before `replicas`, those of each deployment together."""
    drain_timeout = max((deployment.spec.lifecycle.drain_timeout for deployment in deployments), key=seconds)
    termination = termination_path(placement.directory, GATEWAY)
    max_body_bytes = max(deployment.spec.api.max_body_bytes for deployment in deployments)
    config = GatewayConfig(
        static_models=tuple(_static_model(deployment, replicas) for deployment in deployments),
        max_body_bytes=max_body_bytes,
        max_body_memory=max(GatewayConfig().max_body_memory, 2 * max_body_bytes),
        cors_allow_origins=tuple(dict.fromkeys(origin for deployment in deployments for origin in deployment.spec.api.cors_allow_origins)),
        drain_delay="0s",
        drain_timeout=drain_timeout,
        log_level=deployments[0].spec.api.log_level,
        log_format=deployments[0].spec.api.log_format,
        host=placement.host,
        port=placement.port,
        termination_message_path=termination,
        supervisor_fd=placement.supervisor_fd,
    )
    program = ProgramPlan(GATEWAY, to_command(GATEWAY_MODULE, config), termination)
    return GatewayPlan(placement.host, placement.port, seconds(drain_timeout) + STOP_SECONDS, program)


def _static_model(deployment: InferenceDeployment, replicas: Sequence[ReplicaPlan]) -> str:
    model = StaticModel(
        name=deployment.metadata.name,
        namespace=deployment.metadata.namespace,
        served_name=deployment.served_name,
        aliases=deployment.spec.model.aliases,
        traffic=deployment.spec.traffic,
        endpoints=tuple(_reachable(replica.host, replica.port) for replica in replicas if replica.title == _title(deployment)),
    )
    return msgspec.json.encode(model).decode()


def _reachable(host: str, port: int) -> str:
    """A wildcard address is reached by loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _title(deployment: InferenceDeployment) -> str:
    return local_title(deployment.metadata.namespace, deployment.metadata.name)


def _program(component: str, command: Sequence[str], termination: str, spec: ApiSpec | EngineSpec) -> ProgramPlan:
    environment = _environment(spec.env)
    return ProgramPlan(component, (*command, *(expand(argument, environment) for argument in spec.args)), termination, environment)


def _environment(variables: Sequence[EnvVar]) -> dict[str, str]:
    """Each value may refer to those before it."""
    environment: dict[str, str] = {}
    for variable in variables:
        environment[variable.name] = expand(variable.value or "", environment)
    return environment


def _model(deployment: InferenceDeployment) -> ModelConfig:
    settings = _settings(ModelConfig, deployment.spec.model)
    return ModelConfig(**settings | {"uri": pod_model_uri(deployment.spec.model.uri), "served_name": deployment.served_name})


def _settings(settings_type: type[Settings], spec: Settings) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in settings_type.__struct_fields__}
