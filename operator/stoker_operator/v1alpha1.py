"""InferenceDeployment v1alpha1: what a user writes, and what the operator reports. The engine's and the api's settings are their own structs."""

from typing import Annotated, Literal

from msgspec import Meta, field

from stoker_engine.config import EngineSettings, LifecycleConfig, ModelConfig
from stoker_engine.settings import Settings, to_the_end
from stoker_gateway.api.config import ApiSettings
from stoker_gateway.router.traffic import TrafficConfig
from stoker_operator.gateway_api import GatewayApiConfig
from stoker_operator.names import DEFAULT_NAMESPACE, MAX_NAME_LENGTH
from stoker_operator.pod_spec_types import Argument, EnvVar, ImageName, LocalObjectReference, PodTemplate, PullPolicy, Resources
from stoker_operator.spec_sections import (
    AcceleratorConfig,
    AvailabilityConfig,
    CacheConfig,
    MonitoringConfig,
    NetworkConfig,
    RolloutConfig,
    SharedMemoryConfig,
)

NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label that begins with a letter: a Service takes the name."""

ResourceName = Annotated[str, Meta(pattern=to_the_end(NAME_PATTERN), max_length=MAX_NAME_LENGTH, examples=["smollm2"])]
Namespace = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), max_length=63)]

ContainerImage = Annotated[ImageName | None, Meta(description="Default: the operator's.")]
ContainerPullPolicy = Annotated[PullPolicy | None, Meta(description="Default: the operator's.")]
ContainerArgs = Annotated[tuple[Argument, ...], Meta(max_length=64, description="Flags added to the generated ones.")]
ContainerEnv = Annotated[tuple[EnvVar, ...], Meta(max_length=128, description="Environment variables of the container.")]
ContainerResources = Annotated[Resources, Meta(description="What the container asks for and may use.")]
"""What a spec says of the engine's and of the api's container alike; a struct has one base, and theirs are the programs' settings."""


class ObjectMeta(Settings, frozen=True, kw_only=True):
    """What a user may write under `metadata`."""

    name: Annotated[ResourceName, Meta(description="Unique in its namespace.")]
    namespace: Namespace = DEFAULT_NAMESPACE
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class ModelSpec(ModelConfig, frozen=True, kw_only=True):
    """The model (`spec.model`)."""

    credentials_secret_ref: Annotated[LocalObjectReference | None, Meta(description="Secret whose key `token` opens a private hf:// model.")] = None


class EngineSpec(EngineSettings, frozen=True, kw_only=True):
    """The engine container (`spec.engine`)."""

    image: ContainerImage = None
    image_pull_policy: ContainerPullPolicy = None
    args: ContainerArgs = ()
    env: ContainerEnv = ()
    resources: ContainerResources = Resources()


class ApiSpec(ApiSettings, frozen=True, kw_only=True):
    """The api container (`spec.api`)."""

    api_keys_secret_ref: Annotated[
        LocalObjectReference | None,
        Meta(description="Secret whose key `keys` has the API keys that clients may use, one a line. Default: no key is asked for."),
    ] = None
    image: ContainerImage = None
    image_pull_policy: ContainerPullPolicy = None
    args: ContainerArgs = ()
    env: ContainerEnv = ()
    resources: ContainerResources = Resources()


class InferenceDeploymentSpec(Settings, frozen=True, kw_only=True):
    """The model to serve, how many replicas of it, and how."""

    model: Annotated[ModelSpec, Meta(description="Which model, and the names it is served under.")]
    replicas: Annotated[int, Meta(ge=0, le=1000, description="Number of replicas, each an api and an engine; 0 runs none.")] = 1
    engine: Annotated[EngineSpec, Meta(description="How the engine runs the model.")] = EngineSpec()
    api: Annotated[ApiSpec, Meta(description="How the api serves.")] = ApiSpec()
    accelerator: Annotated[AcceleratorConfig, Meta(description="The accelerators of one replica's engine.")] = AcceleratorConfig()
    cache: Annotated[CacheConfig, Meta(description="Where downloaded models live.")] = CacheConfig()
    shared_memory: Annotated[SharedMemoryConfig, Meta(description="The engine's /dev/shm.")] = SharedMemoryConfig()
    lifecycle: Annotated[LifecycleConfig, Meta(description="The deadlines of a replica's life.")] = LifecycleConfig()
    rollout: Annotated[RolloutConfig, Meta(description="How a change reaches the replicas.")] = RolloutConfig()
    traffic: Annotated[TrafficConfig, Meta(description="How the gateway sends requests to the replicas.")] = TrafficConfig()
    availability: Annotated[AvailabilityConfig, Meta(description="What a node drain may take at once.")] = AvailabilityConfig()
    network: Annotated[NetworkConfig, Meta(description="Who may reach the pods.")] = NetworkConfig()
    monitoring: Annotated[MonitoringConfig, Meta(description="How the pods are observed.")] = MonitoringConfig()
    gateway_api: Annotated[GatewayApiConfig, Meta(description="Objects for other gateways, where the cluster knows their kinds.")] = GatewayApiConfig()
    pod_template: Annotated[PodTemplate, Meta(description="Anything of a pod that has no field of its own.")] = PodTemplate()
    paused: Annotated[bool, Meta(description="Hold a rollout where it is.")] = False
    restarted_at: Annotated[Annotated[str, Meta(max_length=256)] | None, Meta(description="Any text; another one restarts the replicas in turn.")] = None


class InferenceDeployment(Settings, frozen=True, kw_only=True):
    """A model served on Kubernetes, or on this machine by `stoker up`."""

    api_version: Literal["stoker.dev/v1alpha1"]
    kind: Literal["InferenceDeployment"]
    metadata: ObjectMeta
    spec: Annotated[InferenceDeploymentSpec, Meta(description="What to run.")]

    @property
    def served_name(self) -> str:
        """The model's first name in the OpenAI API."""
        return self.spec.model.served_name or self.metadata.name
