"""When to look again although nothing happened: a pod that starts tells how far it is only where it is asked."""

from stoker_operator.names import API, ENGINE
from stoker_operator.observed import Observed
from stoker_operator.status.objects import Pod, read_pods

LOADING_SECONDS = 5.0
"""Between two looks at a pod whose programs run and which is not ready."""


def requeue_after(observed: Observed) -> float | None:
    """Seconds until the status may change by time alone; None where only the cluster's own events can change it."""
    return LOADING_SECONDS if any(_may_tell_more(pod) for pod in read_pods(observed.pods)) else None


def _may_tell_more(pod: Pod) -> bool:
    """Both programs run. Of one that has ended, or cannot begin, the kubelet tells what there is to tell."""
    if not pod.is_active or pod.is_ready:
        return False
    containers = (pod.container(API), pod.container(ENGINE))
    return all(container is not None and container.state.running is not None for container in containers)
