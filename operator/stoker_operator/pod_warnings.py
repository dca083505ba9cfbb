"""What the kubelet says of a pod in Warning Events: of volumes that do not mount and of engines that it killed nowhere else, of images sooner."""

from collections.abc import Iterable
from datetime import datetime

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import EVENT
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.observed import PodWarning
from stoker_operator.status.ends import SIGKILLED
from stoker_operator.status.text import timestamp

MAX_PODS = 4
"""Asked about in one look: the others of a rollout tell the same."""

HELD_UP = frozenset({"ErrImageNeverPull", "Failed", "FailedAttachVolume", "FailedMount", "InspectFailed"})
"""The kubelet's reasons for what keeps a pod's containers from starting."""


async def read_warnings(cluster: Cluster, pods: Iterable[KubeObject], known: str) -> dict[str, PodWarning]:
    """By pod name, of those pods alone whose own status leaves it open. `known` is the time of the last failure that is told already. Raises ClusterError."""
    asked = [pod for pod in pods if is_silent(pod) or has_new_kill(pod, known)][:MAX_PODS]
    found = {kube_object.name(pod): await _newest(cluster, pod) for pod in asked}
    return {name: warning for name, warning in found.items() if warning is not None}


def is_silent(pod: KubeObject) -> bool:
    """A node has it, and either nothing of it has run yet, or a container of it was killed."""
    containers = _containers(pod)
    if not pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"] or all(container.get("ready") for container in containers):
        return False
    return all("waiting" in (container.get("state") or {}) for container in containers) or bool(_kills(pod))


def has_new_kill(pod: KubeObject, known: str) -> bool:
    """Whether a container was killed after `known`. It may be ready again before anybody has seen that it was not."""
    return "deletionTimestamp" not in pod["metadata"] and any(timestamp(kill) > known for kill in _kills(pod))


def _kills(pod: KubeObject) -> list[datetime]:
    """When containers of it were killed, as far as it remembers."""
    states = [container.get(state) or {} for container in _containers(pod) for state in ("state", "lastState")]
    ends = [state.get("terminated") or {} for state in states]
    return [datetime.fromisoformat(end["finishedAt"]) for end in ends if end.get("exitCode") == SIGKILLED and end.get("finishedAt")]


def _containers(pod: KubeObject) -> list[KubeObject]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


async def _newest(cluster: Cluster, pod: KubeObject) -> PodWarning | None:
    fields = f"involvedObject.uid={pod['metadata']['uid']},type=Warning"
    try:
        events = (await cluster.list(EVENT, kube_object.namespace(pod), fields=fields)).items
    except ApiError as error:
        if error.passing:
            raise
        return None
    events = [event for event in events if _matters(event)]
    if not events:
        return None
    newest = max(events, key=_time)
    return PodWarning(newest["reason"], newest.get("message") or "", datetime.fromisoformat(_time(newest)))


def _matters(event: KubeObject) -> bool:
    reason, message = event.get("reason"), event.get("message") or ""
    return reason in HELD_UP or (reason == "Unhealthy" and message.startswith("Liveness"))


def _time(event: KubeObject) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
