"""The sections of an InferenceDeployment's spec that say how its pods run, roll out and are reached."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end
from stoker_operator.pod_spec_types import ObjectName, Quantity

IntOrPercent = Annotated[
    int | Annotated[str, Meta(pattern=to_the_end(r"^[0-9]{1,3}%$"))], Meta(examples=[1, "25%"], extra_json_schema={"x-kubernetes-int-or-string": True})
]


class AcceleratorConfig(Settings, frozen=True, kw_only=True):
    """The accelerators of one replica's engine (`spec.accelerator`)."""

    resource_name: Annotated[str, Meta(min_length=1, max_length=253, description="The extended resource that the device plugin offers.")] = "nvidia.com/gpu"
    count: Annotated[int, Meta(ge=0, le=64, description="How many an engine gets; 0 runs on the CPU.")] = 0
    product: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=63)], ...],
        Meta(max_length=16, description="Products that will do, as the node label <domain of resourceName>/gpu.product has them. Default: any."),
    ] = ()
    resource_claim_template_name: Annotated[ObjectName | None, Meta(description="ResourceClaimTemplate for the engine, instead of resourceName.")] = None


class CacheConfig(Settings, frozen=True, kw_only=True):
    """Where downloaded models live (`spec.cache`)."""

    type: Annotated[
        Literal["EmptyDir", "PersistentVolumeClaim", "HostPath"], Meta(description="EmptyDir: gone with the pod; the others are shared by pods.")
    ] = "EmptyDir"
    claim_name: Annotated[ObjectName | None, Meta(description="The PersistentVolumeClaim, of this namespace.")] = None
    host_path: Annotated[Annotated[str, Meta(pattern=to_the_end(r"^/.*$"), max_length=4096)] | None, Meta(description="The directory on each node.")] = None
    size_limit: Annotated[Quantity | None, Meta(description="Most that an EmptyDir may hold. Default: as much as the node has.")] = None


class SharedMemoryConfig(Settings, frozen=True, kw_only=True):
    """The engine's /dev/shm (`spec.sharedMemory`)."""

    size_limit: Annotated[Quantity, Meta(description="A quantity, 0 for the runtime's own 64 MiB, or auto: by the number of processes.")] = "auto"


class RolloutConfig(Settings, frozen=True, kw_only=True):
    """How a changed pod template reaches the replicas (`spec.rollout`)."""

    strategy: Annotated[
        Literal["Auto", "RollingUpdate", "Recreate"],
        Meta(description="Auto: one replica more where the cluster has room for it, else one replica less; the others are a Deployment's."),
    ] = "Auto"
    max_surge: Annotated[IntOrPercent | None, Meta(description="RollingUpdate: replicas above the wanted number. Default: 25%.")] = None
    max_unavailable: Annotated[IntOrPercent | None, Meta(description="RollingUpdate: replicas that may be missing. Default: 25%.")] = None
    min_ready_seconds: Annotated[int, Meta(ge=2, le=3600, description="How long a replica must be ready to count as available.")] = 2
    progress_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=604800)] | None, Meta(description="A rollout without progress for this long has failed. Default: startupTimeout + 300.")
    ] = None
    revision_history_limit: Annotated[int, Meta(ge=0, le=100, description="Old ReplicaSets that are kept.")] = 3


class AvailabilityConfig(Settings, frozen=True, kw_only=True):
    """What a node drain may take at once (`spec.availability`)."""

    max_unavailable: Annotated[IntOrPercent | None, Meta(description="The PodDisruptionBudget's; null makes none.")] = 1


class NetworkConfig(Settings, frozen=True, kw_only=True):
    """Who may reach the pods (`spec.network`)."""

    policy: Annotated[
        Literal["Restricted", "None"], Meta(description="Restricted: a NetworkPolicy for the gateway's and the own namespace; None: no NetworkPolicy.")
    ] = "Restricted"


class MonitoringConfig(Settings, frozen=True, kw_only=True):
    """How the pods are observed (`spec.monitoring`)."""

    pod_monitor: Annotated[bool, Meta(description="Make a PodMonitor where the cluster knows the kind.")] = True
