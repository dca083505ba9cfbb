"""What the kubelet says of a pod in Warning Events: of volumes that do not mount and of engines that it killed nowhere else, of images sooner."""

from collections.abc import Iterable

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import EVENT
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.observed import PodWarning
from stoker_operator.status.ends import SIGKILLED

MAX_PODS = 4
"""Asked about in one look: the others of a rollout tell the same."""

HELD_UP = frozenset({"ErrImageNeverPull", "Failed", "FailedAttachVolume", "FailedMount", "InspectFailed"})
"""The kubelet's reasons for what keeps a pod's containers from starting."""


async def read_warnings(cluster: Cluster, pods: Iterable[KubeObject]) -> dict[str, PodWarning]:
    """By pod name, of those pods alone whose own status leaves it open. Raises ClusterError."""
    asked = [pod for pod in pods if is_silent(pod)][:MAX_PODS]
    found = {kube_object.name(pod): await _newest(cluster, pod) for pod in asked}
    return {name: warning for name, warning in found.items() if warning is not None}


def is_silent(pod: KubeObject) -> bool:
    """A node has it, and either nothing of it has run yet, or a container of it was killed."""
    status = pod.get("status") or {}
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    if not pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"] or all(container.get("ready") for container in containers):
        return False
    return all("waiting" in (container.get("state") or {}) for container in containers) or any(_was_killed(container) for container in containers)


def _was_killed(container: KubeObject) -> bool:
    states = (container.get("state") or {}, container.get("lastState") or {})
    return any((state.get("terminated") or {}).get("exitCode") == SIGKILLED for state in states)


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
    return PodWarning(newest["reason"], newest.get("message") or "")


def _matters(event: KubeObject) -> bool:
    reason, message = event.get("reason"), event.get("message") or ""
    return reason in HELD_UP or (reason == "Unhealthy" and message.startswith("Liveness"))


def _time(event: KubeObject) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
