"""The sections of an InferenceDeployment's spec that say how its pods run, roll out and are reached."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end
from stoker_operator.names import GPU_RESOURCE
from stoker_operator.pod_spec_types import LABEL_VALUE, IntOrPercent, ObjectName, QualifiedName, Quantity, QuantityOrAuto

Product = Annotated[str, Meta(pattern=to_the_end(LABEL_VALUE), min_length=1, max_length=63, examples=["NVIDIA-H200"])]
Directory = Annotated[str, Meta(pattern=to_the_end(r"^/.*$"), max_length=4096, examples=["/var/cache/models"])]
DeadlineSeconds = Annotated[int, Meta(ge=1, le=604800)]


class AcceleratorConfig(Settings, frozen=True, kw_only=True):
    """The accelerators of one replica's engine (`spec.accelerator`)."""

    resource_name: Annotated[QualifiedName, Meta(description="The extended resource that the device plugin offers.")] = GPU_RESOURCE
    count: Annotated[int, Meta(ge=0, le=64, description="How many an engine gets; 0 runs on the CPU.")] = 0
    product: Annotated[
        tuple[Product, ...],
        Meta(max_length=16, description="Products that will do, as the node label <domain of resourceName>/gpu.product has them. Default: any."),
    ] = ()
    resource_claim_template_name: Annotated[
        ObjectName | None, Meta(description="ResourceClaimTemplate that the engine's accelerators are claimed with, instead of resourceName and count.")
    ] = None


class CacheConfig(Settings, frozen=True, kw_only=True):
    """Where downloaded models live (`spec.cache`)."""

    type: Annotated[
        Literal["EmptyDir", "PersistentVolumeClaim", "HostPath"],
        Meta(description="EmptyDir is gone with the pod; the others outlive it and are shared by pods. Cannot be changed later."),
    ] = "EmptyDir"
    claim_name: Annotated[ObjectName | None, Meta(description="The PersistentVolumeClaim, in this namespace; only for type PersistentVolumeClaim.")] = None
    host_path: Annotated[Directory | None, Meta(description="The directory on each node; only for type HostPath.")] = None
    size_limit: Annotated[Quantity | None, Meta(description="Most that the directory may hold; only for type EmptyDir. Default: as the node allows.")] = None


class SharedMemoryConfig(Settings, frozen=True, kw_only=True):
    """The engine's /dev/shm (`spec.sharedMemory`)."""

    size_limit: Annotated[
        QuantityOrAuto, Meta(description="A quantity; 0 leaves the container runtime's own 64 MiB; auto goes by the number of processes.")
    ] = "auto"


class RolloutConfig(Settings, frozen=True, kw_only=True):
    """How a changed pod template reaches the replicas (`spec.rollout`)."""

    strategy: Annotated[
        Literal["Auto", "RollingUpdate", "Recreate"],
        Meta(description="Auto starts a new replica first where the cluster has room for one, else stops an old one first; the others are a Deployment's."),
    ] = "Auto"
    max_surge: Annotated[IntOrPercent | None, Meta(description="Replicas above the wanted number, or a share of it; only for RollingUpdate. Default: 25%.")] = (
        None
    )
    max_unavailable: Annotated[
        IntOrPercent | None, Meta(description="Replicas that may be missing, or a share of the wanted number; only for RollingUpdate. Default: 25%.")
    ] = None
    min_ready_seconds: Annotated[int, Meta(ge=2, le=3600, description="How long a replica must be ready to count as available.")] = 2
    progress_deadline_seconds: Annotated[
        DeadlineSeconds | None, Meta(description="A rollout without progress for this long has failed. Default: startupTimeout + 300 s.")
    ] = None
    revision_history_limit: Annotated[int, Meta(ge=0, le=100, description="Old ReplicaSets that are kept, to go back to.")] = 3


class AvailabilityConfig(Settings, frozen=True, kw_only=True):
    """What a node drain may take at once (`spec.availability`)."""

    max_unavailable: Annotated[
        IntOrPercent | None,
        Meta(description="The PodDisruptionBudget's maxUnavailable; null makes no PodDisruptionBudget.", extra_json_schema={"nullable": True}),
    ] = 1


class NetworkConfig(Settings, frozen=True, kw_only=True):
    """Who may reach the pods (`spec.network`)."""

    policy: Annotated[
        Literal["Restricted", "None"],
        Meta(
            description="Restricted makes a NetworkPolicy: requests from this namespace, the gateway's and the operator's, metrics from anywhere, and out "
            "of the pods only DNS and HTTPS. None makes no NetworkPolicy."
        ),
    ] = "Restricted"


class MonitoringConfig(Settings, frozen=True, kw_only=True):
    """How the pods are observed (`spec.monitoring`)."""

    pod_monitor: Annotated[bool, Meta(description="Make a PodMonitor where the cluster knows that kind.")] = True
