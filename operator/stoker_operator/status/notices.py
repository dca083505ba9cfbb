"""What changed in a status that a person wants to be told of: Kubernetes Events, one for each change, none for a state that lasts."""

from dataclasses import dataclass
from typing import Literal

from stoker_operator.status.text import one_line
from stoker_operator.status_types import InferenceDeploymentStatus


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event about the InferenceDeployment."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def notices(previous: InferenceDeploymentStatus, current: InferenceDeploymentStatus) -> tuple[Notice, ...]:
    """One when Ready or its reason changes, one for a new failure, one for a new drain."""
    return tuple(notice for notice in (_readiness(previous, current), _failure(previous, current), _drain(previous, current)) if notice is not None)


def _readiness(previous: InferenceDeploymentStatus, current: InferenceDeploymentStatus) -> Notice | None:
    was, ready = (next((each for each in status.conditions if each.type == "Ready"), None) for status in (previous, current))
    if ready is None or (was is not None and (was.status, was.reason) == (ready.status, ready.reason)):
        return None
    return Notice("Normal" if ready.status == "True" or ready.reason in _USUAL else "Warning", ready.reason, one_line(ready.message))


def _failure(previous: InferenceDeploymentStatus, current: InferenceDeploymentStatus) -> Notice | None:
    failure = current.last_failure
    if failure is None or failure == previous.last_failure:
        return None
    words = f": {failure.message}" if failure.message else ""
    text = f"Pod {failure.pod}: container {failure.container} ended with exit code {failure.exit_code} ({failure.reason}){words}"
    return Notice("Warning", "Failed", one_line(text))


def _drain(previous: InferenceDeploymentStatus, current: InferenceDeploymentStatus) -> Notice | None:
    drain = current.last_drain
    if drain is None or drain == previous.last_drain:
        return None
    text = (
        f"Pod {drain.pod} drained in {drain.duration_seconds:g} s: of {drain.in_flight_at_start} requests {drain.completed} completed, {drain.aborted} aborted"
    )
    return Notice("Warning" if drain.aborted else "Normal", "Drained", text)


_USUAL = frozenset({"RollingOut", "ModelLoading", "Paused"})
