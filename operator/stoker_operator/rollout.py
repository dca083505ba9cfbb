"""How a change reaches the replicas: one replica more where the cluster has room for it, else one less."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from stoker_operator import kube_object
from stoker_operator.capacity import has_room
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL, TEMPLATE_INPUTS_ANNOTATION
from stoker_operator.resources.context import Defaults, DeploymentStrategy
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.v1alpha1 import InferenceDeployment

DEFAULT_SHARE = "25%"
STUCK_SECONDS = 10.0
"""A pod that has waited longer than this for a node will not get one soon. A queue such as Kueue's gates every pod for a moment."""

SURGE = DeploymentStrategy("RollingUpdate", max_surge=1, max_unavailable=0)
TERMINATE_FIRST = DeploymentStrategy("RollingUpdate", max_surge=0, max_unavailable=1)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a decision looks at: the pods and nodes of the cluster (nodes None: they may not be read), and the claims that the pods mount."""

    pods: Sequence[KubeObject]
    nodes: Sequence[KubeObject] | None
    claims: Sequence[KubeObject]
    now: datetime


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a strategy comes to where there is room for one more pod, and where there is none."""

    roomy: DeploymentStrategy
    tight: DeploymentStrategy


def decide_strategy(deployment: InferenceDeployment, defaults: Defaults, live: KubeObject | None, view: ClusterView) -> DeploymentStrategy:
    """Decided when a rollout begins, and kept: a surge that is under way takes the very room that it was given. `live` is the Deployment, if there is one."""
    choice = _choice(deployment)
    if choice.roomy == choice.tight:
        return choice.roomy
    if any(_is_single_node(claim) for claim in view.claims):
        return choice.tight
    if live is None:
        return choice.roomy
    begins = begins_rollout(deployment, live)
    under_way = _is_under_way(live)
    if (under_way or not begins) and _strategy_of(live) == choice.tight:
        return choice.tight
    if not under_way and not begins:
        return choice.roomy
    pod_spec = pod_template(deployment, defaults)["spec"]
    if begins and view.nodes is not None and has_room(pod_spec, view.nodes, view.pods):
        return choice.roomy
    if not is_stuck(deployment, view.pods, view.now) and (under_way or view.nodes is None):
        return choice.roomy
    return choice.tight if _would_make_room(deployment, pod_spec, view) else choice.roomy


def begins_rollout(deployment: InferenceDeployment, live: KubeObject) -> bool:
    """Whether the pods of the Deployment `live` were made from another spec."""
    return kube_object.annotations(live).get(TEMPLATE_INPUTS_ANNOTATION) != template_inputs(deployment)


def is_stuck(deployment: InferenceDeployment, pods: Iterable[KubeObject], now: datetime) -> bool:
    """Whether a replica has no node, and will not get one soon."""
    return any(_waits_for_node(pod, now) for pod in pods if _is_of(deployment, pod))


def _would_make_room(deployment: InferenceDeployment, pod_spec: KubeObject, view: ClusterView) -> bool:
    """Whether a replica has room once others of ours have ended. Where it has not, they would end for nothing."""
    return view.nodes is None or has_room(pod_spec, view.nodes, [pod for pod in view.pods if not _is_of(deployment, pod)])


def _choice(deployment: InferenceDeployment) -> _Choice:
    """Numbers that the user wrote stand; where a default would leave no way without room, it gives way."""
    rollout = deployment.spec.rollout
    surge, unavailable = rollout.max_surge, rollout.max_unavailable
    match rollout.strategy:
        case "Recreate":
            recreate = DeploymentStrategy("Recreate")
            return _Choice(recreate, recreate)
        case "Auto":
            return _Choice(SURGE, TERMINATE_FIRST)
        case "RollingUpdate":
            tight_surge = DEFAULT_SHARE if unavailable in (0, "0%") else 0
            return _Choice(
                roomy=DeploymentStrategy("RollingUpdate", _or(surge, DEFAULT_SHARE), _or(unavailable, DEFAULT_SHARE)),
                tight=DeploymentStrategy("RollingUpdate", _or(surge, tight_surge), _or(unavailable, 1)),
            )


def _or(value: int | str | None, default: int | str) -> int | str:
    return default if value is None else value


def _strategy_of(live: KubeObject) -> DeploymentStrategy:
    strategy = live["spec"].get("strategy") or {}
    numbers = strategy.get("rollingUpdate") or {}
    return DeploymentStrategy(strategy.get("type", "RollingUpdate"), numbers.get("maxSurge"), numbers.get("maxUnavailable"))


def _is_under_way(live: KubeObject) -> bool:
    """Whether pods of an older template are there, or pods of the newest are still to be made."""
    status = live.get("status") or {}
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return True
    updated = status.get("updatedReplicas", 0)
    return bool(updated < live["spec"].get("replicas", 1) or status.get("replicas", 0) > updated)


def _is_of(deployment: InferenceDeployment, pod: KubeObject) -> bool:
    metadata = deployment.metadata
    return kube_object.namespace(pod) == metadata.namespace and kube_object.labels(pod).get(INFERENCE_DEPLOYMENT_LABEL) == metadata.name


def _waits_for_node(pod: KubeObject, now: datetime) -> bool:
    scheduled = kube_object.condition(pod, "PodScheduled")
    if scheduled is None or scheduled.get("status") != "False" or scheduled.get("reason") not in ("Unschedulable", "SchedulingGated"):
        return False
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (now - created).total_seconds() >= STUCK_SECONDS and "deletionTimestamp" not in pod["metadata"]


def _is_single_node(claim: KubeObject) -> bool:
    """Whether pods of several nodes cannot mount the claim at a time."""
    modes = set(claim["spec"].get("accessModes") or ())
    return bool(modes) and modes <= {"ReadWriteOnce", "ReadWriteOncePod"}
