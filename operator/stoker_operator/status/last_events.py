"""The last failure of a container and the last drain of a replica: the newest that the pods show, or the one that was known before."""

from collections.abc import Iterable, Mapping

from stoker_engine.termination import TerminationMessage
from stoker_operator.names import API
from stoker_operator.status.ends import End, ends_of, failures_of
from stoker_operator.status.objects import Pod
from stoker_operator.status.pod_failure import Evidence, crash_reason
from stoker_operator.status.reasons import Reason
from stoker_operator.status.text import one_line
from stoker_operator.status_types import LastDrain, LastFailure

DRAINED = frozenset({"Drained", "Aborted"})
MAX_COUNT = 2**31 - 1


def find_last_failure(pods: Iterable[Pod], evidence: Mapping[str, Evidence], previous: LastFailure | None) -> LastFailure | None:
    """Containers of a pod that was deleted end because of that. A failure that was known stays as it was told."""
    found = [_to_failure(pod, end, evidence[pod.name]) for pod in pods if not pod.is_terminating for end in failures_of(pod) if end.time]
    newest = max(found, key=lambda each: (each.time, each.pod, each.container), default=None)
    return newest if newest is not None and (previous is None or newest.time > previous.time) else previous


def find_last_drain(pods: Iterable[Pod], previous: LastDrain | None) -> LastDrain | None:
    """As the api's last words have it."""
    ends = (end for pod in pods if (api := pod.container(API)) is not None for end in ends_of(pod, api))
    found = [_to_drain(end, end.words) for end in ends if end.words is not None and end.time and _is_drain(end.words)]
    newest = max(found, key=lambda each: (each.time, each.pod), default=None)
    return newest if newest is not None and (previous is None or newest.time > previous.time) else previous


def _to_failure(pod: Pod, end: End, evidence: Evidence) -> LastFailure:
    reason, message = end.reason, end.message
    if pod.status.phase == "Failed" and pod.status.reason:  # the kubelet took the whole pod, as in an eviction
        reason, message = pod.status.reason, one_line(pod.status.message)
    elif end.words is None and crash_reason(pod, end, evidence) is Reason.ENGINE_HUNG:
        reason = Reason.ENGINE_HUNG
    return LastFailure(
        time=end.time,
        pod=pod.name,
        container=end.container,
        reason=reason[:128],
        exit_code=min(max(end.terminated.exit_code, 0), 255),
        message=message,
    )


def _is_drain(words: TerminationMessage) -> bool:
    """An api that was stopped before it served had nothing to drain."""
    return words.reason in DRAINED and words.phase != "starting"


def _to_drain(end: End, words: TerminationMessage) -> LastDrain:
    return LastDrain(
        time=end.time,
        pod=end.pod,
        in_flight_at_start=_count(words.in_flight_at_start),
        completed=_count(words.completed),
        aborted=_count(words.aborted),
        duration_seconds=min(max(words.seconds, 0.0), float(MAX_COUNT)),
    )


def _count(number: int) -> int:
    """A number that the status may hold, whatever a program of the user's left."""
    return min(max(number, 0), MAX_COUNT)
