"""When to look again although nothing happened: a pod that starts tells how far it is only where it is asked."""

from stoker_operator.observed import Observed
from stoker_operator.status.objects import read_pods

LOADING_SECONDS = 5.0
"""Between two looks at a pod that runs and is not ready."""


def requeue_after(observed: Observed) -> float | None:
    """Seconds until the status may change by time alone; None where only the cluster's own events can change it."""
    return LOADING_SECONDS if any(pod.is_running and not pod.is_ready for pod in read_pods(observed.pods)) else None
