"""Replicas: what the Deployment and its pods say of an InferenceDeployment's replicas, taken together."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from stoker_operator.observed import Observed, Rendering
from stoker_operator.status.objects import Deployment, Pod, read_deployment, read_pods, read_replica_sets

REVISION = "deployment.kubernetes.io/revision"
TEMPLATE_HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Replicas:
    """`updated` and `old` are the pods of the present pod template and of earlier ones that count as replicas; `pods` are all.

    `is_current`: the Deployment is what is asked for, and its controller has seen it. Until then no pod counts as updated.
    """

    desired: int
    is_current: bool
    deployment: Deployment | None
    pods: tuple[Pod, ...]
    updated: tuple[Pod, ...]
    old: tuple[Pod, ...]

    @property
    def total(self) -> int:
        return 0 if self.deployment is None else self.deployment.status.replicas

    @property
    def num_ready(self) -> int:
        return 0 if self.deployment is None else self.deployment.status.ready_replicas

    @property
    def num_updated(self) -> int:
        return 0 if self.deployment is None or not self.is_current else self.deployment.status.updated_replicas

    @property
    def num_available(self) -> int:
        """As the Deployment says, but no more than there are ready pods: it may not have seen yet that one is lost."""
        if self.deployment is None:
            return 0
        return min(self.deployment.status.available_replicas, sum(pod.is_ready for pod in (*self.updated, *self.old)))

    @property
    def is_complete(self) -> bool:
        """Every replica is of the present template and available, and no other one is left but those that drain."""
        counts = (self.total, self.num_updated, self.num_available)
        all_ready = len(self.updated) == self.desired and all(pod.is_ready for pod in self.updated)
        return self.is_current and counts == (self.desired,) * 3 and all_ready and not self.old

    @property
    def num_needed(self) -> int:
        """How many must serve for the InferenceDeployment to be available: one at least, unless none is wanted."""
        return max(self.desired - self._max_unavailable, min(self.desired, 1))

    @property
    def _max_unavailable(self) -> int:
        strategy = None if self.deployment is None else self.deployment.spec.strategy
        if strategy is None or strategy.type != "RollingUpdate" or strategy.rolling_update is None:
            return 0
        surge = _resolve(strategy.rolling_update.max_surge, self.desired, math.ceil)
        unavailable = _resolve(strategy.rolling_update.max_unavailable, self.desired, math.floor)
        return 1 if surge == unavailable == 0 else unavailable


def read_replicas(observed: Observed, desired: int | None) -> Replicas:
    """`desired` None: it is not known, and the Deployment's own number is taken."""
    deployment = read_deployment(observed.deployment)
    pods = read_pods(observed.pods)
    is_current = deployment is not None and observed.rendering is Rendering.CURRENT and deployment.status.observed_generation >= deployment.metadata.generation
    template_hash = _template_hash(deployment, observed) if is_current else None
    active = tuple(pod for pod in pods if pod.is_active)
    updated = tuple(pod for pod in active if template_hash is not None and pod.metadata.labels.get(TEMPLATE_HASH) == template_hash)
    return Replicas(
        desired=desired if desired is not None else deployment.spec.replicas if deployment is not None else 0,
        is_current=is_current,
        deployment=deployment,
        pods=pods,
        updated=updated,
        old=tuple(pod for pod in active if pod not in updated),
    )


def _template_hash(deployment: Deployment | None, observed: Observed) -> str | None:
    """The label of the newest ReplicaSet's pods. A paused Deployment makes no ReplicaSet for a new template, and keeps the revision of the old one."""
    if deployment is None or (deployment.spec.paused and deployment.status.updated_replicas == 0):
        return None
    revision = deployment.metadata.annotations.get(REVISION)
    sets = (each for each in read_replica_sets(observed.replica_sets) if each.metadata.annotations.get(REVISION) == revision)
    return next((each.metadata.labels.get(TEMPLATE_HASH) for each in sets if revision is not None), None)


def _resolve(value: int | str | None, total: int, rounded: Callable[[float], int]) -> int:
    """`25%` of `total` or a number, as the Deployment controller counts it."""
    if isinstance(value, str):
        return rounded(int(value.removesuffix("%")) * total / 100)
    return value or 0
