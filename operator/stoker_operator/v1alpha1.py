"""InferenceDeployment v1alpha1: what a user writes, and what the operator reports. The engine's and the api's settings are their own structs."""

from typing import Annotated, Literal

from msgspec import Meta, field

from stoker_engine.config import EngineSettings, LifecycleConfig, ModelConfig
from stoker_engine.settings import Settings, to_the_end
from stoker_gateway.api.config import ApiSettings
from stoker_operator.names import DEFAULT_NAMESPACE, MAX_NAME_LENGTH

NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label that begins with a letter: a Service takes the name."""

ResourceName = Annotated[str, Meta(pattern=to_the_end(NAME_PATTERN), max_length=MAX_NAME_LENGTH, examples=["smollm2"])]
Namespace = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), max_length=63)]


class ObjectMeta(Settings, frozen=True, kw_only=True):
    """What a user may write under `metadata`."""

    name: Annotated[ResourceName, Meta(description="Unique in its namespace.")]
    namespace: Namespace = DEFAULT_NAMESPACE
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class EngineSpec(EngineSettings, frozen=True, kw_only=True):
    """The engine container (`spec.engine`)."""


class ApiSpec(ApiSettings, frozen=True, kw_only=True):
    """The api container (`spec.api`)."""


class InferenceDeploymentSpec(Settings, frozen=True, kw_only=True):
    """The model to serve, how many replicas of it, and how."""

    model: Annotated[ModelConfig, Meta(description="Which model, and the names it is served under.")]
    replicas: Annotated[int, Meta(ge=0, le=1000, description="Number of replicas, each an api and an engine; 0 runs none.")] = 1
    engine: Annotated[EngineSpec, Meta(description="How the engine runs the model.")] = EngineSpec()
    api: Annotated[ApiSpec, Meta(description="How the api serves.")] = ApiSpec()
    lifecycle: Annotated[LifecycleConfig, Meta(description="The deadlines of a replica's life.")] = LifecycleConfig()


class Condition(Settings, frozen=True, kw_only=True):
    """A `metav1.Condition`."""

    type: Annotated[str, Meta(min_length=1, max_length=316, description="What the condition is about, such as Ready.")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it holds.")]
    reason: Annotated[
        str, Meta(min_length=1, max_length=1024, pattern=to_the_end(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"), description="Why, in one CamelCase word.")
    ]
    message: Annotated[str, Meta(max_length=32768, description="Why, in a sentence.")]
    last_transition_time: Annotated[str, Meta(max_length=64, description="When status last changed.", extra_json_schema={"format": "date-time"})]
    observed_generation: Annotated[int, Meta(ge=0, description="The generation that the condition was computed for.")] = 0


class InferenceDeploymentStatus(Settings, frozen=True, kw_only=True):
    """What the operator reports."""

    observed_generation: Annotated[int, Meta(ge=0, description="The generation that the rest of the status was computed for.")] = 0
    replicas: Annotated[int, Meta(ge=0, description="Number of replicas that exist.")] = 0
    selector: Annotated[str, Meta(max_length=1024, description="Label selector of the replicas' pods, for kubectl scale and the HPA.")] = ""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16, description="The state of the InferenceDeployment, sorted by type.")] = ()


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
