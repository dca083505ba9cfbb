"""What of a pod a user writes in an InferenceDeployment: images, environment, resources, volumes, the template's own fields."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from stoker_engine.settings import Settings, to_the_end

ObjectName = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), max_length=253)]
ImageName = Annotated[str, Meta(min_length=1, max_length=1024, examples=["registry.example/stoker-engine:0.1.0"])]
Quantity = Annotated[
    int | str,
    Meta(examples=["8Gi", "500m"], extra_json_schema={"x-kubernetes-int-or-string": True}),
]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class LocalObjectReference(Settings, frozen=True, kw_only=True):
    """An object of the same namespace."""

    name: Annotated[ObjectName, Meta(description="The object's name.")]


class EnvVar(Settings, frozen=True, kw_only=True):
    """An environment variable of a container, as in a pod."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="The variable's name.")]
    value: Annotated[Annotated[str, Meta(max_length=32768)] | None, Meta(description="Its value. Default: valueFrom's, or empty.")] = None
    value_from: Annotated[dict[str, Any] | None, Meta(description="Where the value comes from: a Secret's key, a field of the pod.")] = None


class Resources(Settings, frozen=True, kw_only=True):
    """What a container asks for and may use, as in a pod."""

    requests: Annotated[dict[str, Quantity], Meta(description="What the scheduler reserves.")] = field(default_factory=dict)
    limits: Annotated[dict[str, Quantity], Meta(description="What the container may use at most.")] = field(default_factory=dict)


class PodTemplateMetadata(Settings, frozen=True, kw_only=True):
    """Labels and annotations added to the pods'."""

    labels: Annotated[dict[str, str], Meta(description="Added to the pods' labels.")] = field(default_factory=dict)
    annotations: Annotated[dict[str, str], Meta(description="Added to the pods' annotations.")] = field(default_factory=dict)


class PodTemplate(Settings, frozen=True, kw_only=True):
    """Anything of a pod that has no field of its own: merged over what is generated, lists of named things by name."""

    metadata: Annotated[PodTemplateMetadata, Meta(description="Labels and annotations of the pods.")] = PodTemplateMetadata()
    spec: Annotated[dict[str, Any], Meta(description="A partial PodSpec; containers are api, initContainers' engine is the engine.")] = field(
        default_factory=dict
    )
