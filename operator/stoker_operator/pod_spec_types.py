"""What of a pod a user writes in an InferenceDeployment: images, environment, resources, volumes, the template's own fields."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from stoker_engine.settings import Settings, to_the_end

QUANTITY = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?"
"""A Kubernetes quantity that is not negative."""
QUALIFIED_NAME = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"

INT_OR_STRING = {"x-kubernetes-int-or-string": True}
ANY_FIELDS = {"x-kubernetes-preserve-unknown-fields": True}
TERMINATION_GRACE = {
    "terminationGracePeriodSeconds": {
        "description": "Seconds from a pod's deletion to SIGKILL. Default: preStopDelay + drainTimeout and what the stop takes.",
        "type": "integer",
        "minimum": 0,
        "maximum": 604800,
    }
}

ObjectName = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), max_length=253)]
ImageName = Annotated[str, Meta(pattern=to_the_end(r"^[^ ]+$"), max_length=1024, examples=["registry.example/stoker-engine:0.1.0"])]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Argument = Annotated[str, Meta(max_length=4096)]

NonNegative = Annotated[int, Meta(ge=0)]
Quantity = Annotated[
    NonNegative | Annotated[str, Meta(pattern=to_the_end(f"^{QUANTITY}$"), max_length=64)],
    Meta(examples=["8Gi", "500m"], extra_json_schema=INT_OR_STRING),
]
QuantityOrAuto = Annotated[
    NonNegative | Annotated[str, Meta(pattern=to_the_end(f"^(auto|{QUANTITY})$"), max_length=64)],
    Meta(examples=["8Gi", "auto"], extra_json_schema=INT_OR_STRING),
]
IntOrPercent = Annotated[
    Annotated[int, Meta(ge=0, le=1000)] | Annotated[str, Meta(pattern=to_the_end(r"^(100|[1-9]?[0-9])%$"), max_length=4)],
    Meta(examples=[1, "25%"], extra_json_schema=INT_OR_STRING),
]

QualifiedName = Annotated[str, Meta(pattern=to_the_end(QUALIFIED_NAME), max_length=317)]
ResourceList = Annotated[dict[QualifiedName, Quantity], Meta(max_length=32)]
Labels = Annotated[dict[QualifiedName, Annotated[str, Meta(pattern=to_the_end(LABEL_VALUE), max_length=63)]], Meta(max_length=64)]
Annotations = Annotated[dict[QualifiedName, Annotated[str, Meta(max_length=65536)]], Meta(max_length=64)]


class LocalObjectReference(Settings, frozen=True, kw_only=True):
    """An object of the same namespace."""

    name: Annotated[ObjectName, Meta(description="The object's name.")]


class EnvVar(Settings, frozen=True, kw_only=True):
    """An environment variable of a container, as in a pod."""

    name: Annotated[str, Meta(pattern=to_the_end(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"), max_length=253, description="The variable's name.")]
    value: Annotated[Annotated[str, Meta(max_length=32768)] | None, Meta(description="Its value. Default: valueFrom's, or empty.")] = None
    value_from: Annotated[
        Annotated[dict[str, Any], Meta(max_length=8, extra_json_schema=ANY_FIELDS)] | None,
        Meta(description="Where the value comes from, as in a pod: secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef."),
    ] = None


class Resources(Settings, frozen=True, kw_only=True):
    """What a container asks for and may use, as in a pod."""

    requests: Annotated[ResourceList, Meta(description="What the scheduler reserves on a node, by name: cpu, memory, ….")] = field(default_factory=dict)
    limits: Annotated[ResourceList, Meta(description="What the container may use at most, by name: cpu, memory, ….")] = field(default_factory=dict)


class PodTemplateMetadata(Settings, frozen=True, kw_only=True):
    """Labels and annotations added to the pods'."""

    labels: Annotated[Labels, Meta(description="Added to the pods' labels.")] = field(default_factory=dict)
    annotations: Annotated[Annotations, Meta(description="Added to the pods' annotations.")] = field(default_factory=dict)


class PodTemplate(Settings, frozen=True, kw_only=True):
    """Anything of a pod that has no field of its own: merged over what is generated, lists of named things by name."""

    metadata: Annotated[PodTemplateMetadata, Meta(description="Labels and annotations of the pods.")] = PodTemplateMetadata()
    spec: Annotated[
        dict[str, Any],
        Meta(
            max_length=64,
            description="A partial PodSpec, merged over the generated one. The api is the container named api, the engine the init container named engine.",
            extra_json_schema=ANY_FIELDS | {"properties": TERMINATION_GRACE},
        ),
    ] = field(default_factory=dict)
