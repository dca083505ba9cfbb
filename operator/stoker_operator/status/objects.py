"""The parts of pods, ReplicaSets and the Deployment that a status is made of, typed."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from stoker_operator.kube_object import KubeObject


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reads what it names and ignores the rest of an object."""


class Terminated(_Part, frozen=True):
    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Waiting(_Part, frozen=True):
    reason: str = ""
    message: str = ""


class Running(_Part, frozen=True):
    started_at: datetime | None = None


class ContainerState(_Part, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class Container(_Part, frozen=True):
    """A container's status. `last_state` is how it ended before its last restart."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ObjectCondition(_Part, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Metadata(_Part, frozen=True):
    name: str
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class PodStatus(_Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[ObjectCondition, ...] = ()
    container_statuses: tuple[Container, ...] = ()
    init_container_statuses: tuple[Container, ...] = ()


class Pod(_Part, frozen=True):
    metadata: Metadata
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        """It counts as a replica: it is not on its way out, and has not ended for good."""
        return not self.is_terminating and self.status.phase not in ("Failed", "Succeeded")

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def is_running(self) -> bool:
        """One of its containers runs or has run, so that there may be someone to ask."""
        return self.is_active and bool(self.status.pod_ip)

    @property
    def containers(self) -> tuple[Container, ...]:
        """Sidecars and other init containers first, as they start."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    def container(self, name: str) -> Container | None:
        return next((each for each in self.containers if each.name == name), None)

    def condition(self, condition_type: str) -> ObjectCondition | None:
        return find_condition(self.status.conditions, condition_type)


class DeploymentStatus(_Part, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[ObjectCondition, ...] = ()


class RollingUpdate(_Part, frozen=True):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class Strategy(_Part, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(_Part, frozen=True):
    replicas: int = 1
    paused: bool = False
    strategy: Strategy = Strategy()


class Deployment(_Part, frozen=True):
    metadata: Metadata
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    def condition(self, condition_type: str) -> ObjectCondition | None:
        return find_condition(self.status.conditions, condition_type)


class ReplicaSet(_Part, frozen=True):
    metadata: Metadata


def find_condition(conditions: Iterable[ObjectCondition], condition_type: str) -> ObjectCondition | None:
    return next((each for each in conditions if each.type == condition_type), None)


def read_pods(objects: Iterable[KubeObject]) -> tuple[Pod, ...]:
    """By name, whatever their order. Raises msgspec.ValidationError for what no API server would give."""
    return tuple(sorted((msgspec.convert(each, Pod) for each in objects), key=lambda pod: pod.name))


def read_deployment(obj: KubeObject | None) -> Deployment | None:
    return None if obj is None else msgspec.convert(obj, Deployment)


def read_replica_sets(objects: Iterable[KubeObject]) -> tuple[ReplicaSet, ...]:
    return tuple(msgspec.convert(each, ReplicaSet) for each in objects)
