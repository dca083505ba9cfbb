"""Why a pod does not become ready, in the words of the scheduler, the kubelet and the programs."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stoker_engine.exit_codes import ExitCode
from stoker_operator.names import API, ENGINE
from stoker_operator.observed import PodWarning
from stoker_operator.pod_reports import PodReport
from stoker_operator.spec_sections import AcceleratorConfig
from stoker_operator.status.ends import OOM_KILLED, SIGKILLED, End, failures_of
from stoker_operator.status.objects import Container, Pod
from stoker_operator.status.reasons import Reason
from stoker_operator.status.text import one_line
from stoker_operator.status_types import LastFailure

IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"})
IMAGE_EVENTS = frozenset({"ErrImageNeverPull", "InspectFailed"})
REFERENCE_EVENTS = frozenset({"Failed", "FailedMount", "FailedAttachVolume"})
CONFIG_REASON = "CreateContainerConfigError"
START_REASONS = frozenset({CONFIG_REASON, "CreateContainerError", "RunContainerError"})
HUNG_STATES = frozenset({"hung", "unresponsive"})

RECOVERED = timedelta(seconds=30)
"""A pod that turns unready this long after a container's restart had got over that restart: its probes tell of an end sooner."""


@dataclass(frozen=True, slots=True)
class PodFailure:
    pod: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What else is known of a pod. `was_hung`: the status says of its engine that it is hung. `known`: its failure that is told already."""

    report: PodReport
    warning: PodWarning | None = None
    accelerator: AcceleratorConfig = field(default_factory=AcceleratorConfig)
    was_hung: bool = False
    known: LastFailure | None = None


def find_failure(pod: Pod, evidence: Evidence) -> PodFailure | None:
    """None for a pod that is ready, or that nothing is known to hinder."""
    if pod.is_ready:
        return None
    found = _unscheduled(pod, evidence.accelerator) or _waiting(pod) or _held_up(pod, evidence.warning) or _hung(evidence.report) or _ended(pod, evidence)
    return None if found is None else PodFailure(pod.name, found[0], one_line(f"Pod {pod.name}: {found[1]}"))


def _unscheduled(pod: Pod, accelerator: AcceleratorConfig) -> tuple[Reason, str] | None:
    scheduled = pod.condition("PodScheduled")
    if scheduled is None or scheduled.status == "True":
        return None
    message = scheduled.message or scheduled.reason
    if _names_missing_object(message):
        return Reason.MISSING_REFERENCE, message
    lacks_accelerator = f"Insufficient {accelerator.resource_name}" in message
    # "no new claims to deallocate" stands in every message of a scheduler that knows claims.
    lacks_claim = accelerator.resource_claim_template_name is not None and "cannot allocate all claims" in message
    return (Reason.INSUFFICIENT_ACCELERATORS if lacks_accelerator or lacks_claim else Reason.UNSCHEDULABLE), message


def _waiting(pod: Pod) -> tuple[Reason, str] | None:
    for container in pod.containers:
        waiting = container.state.waiting
        if waiting is None:
            continue
        description = f"container {container.name}: {waiting.reason}: {waiting.message}"
        if waiting.reason in IMAGE_REASONS:
            return Reason.IMAGE_PULL_FAILED, description
        if waiting.reason == CONFIG_REASON and _names_missing_object(waiting.message):
            return Reason.MISSING_REFERENCE, description
        if waiting.reason in START_REASONS:
            return _crash_of(pod, container.name), description
    return None


def _held_up(pod: Pod, warning: PodWarning | None) -> tuple[Reason, str] | None:
    """Of a volume that does not mount only an Event tells, and of an image or a reference that is not there it tells 10 to 20 s before the pod's status."""
    if warning is None or any(each.state.waiting is None for each in pod.containers):
        return None
    words = warning.message.removeprefix("Error: ")
    if warning.reason in IMAGE_EVENTS or words in IMAGE_REASONS or words.startswith("Failed to pull image"):
        return Reason.IMAGE_PULL_FAILED, words
    return (Reason.MISSING_REFERENCE, words) if warning.reason in REFERENCE_EVENTS and _names_missing_object(words) else None


def _names_missing_object(message: str) -> bool:
    return "not found" in message or "couldn't find key" in message or "non-existent config key" in message


def _hung(report: PodReport) -> tuple[Reason, str] | None:
    readiness = report.readiness
    return None if readiness is None or readiness.engine not in HUNG_STATES else (Reason.ENGINE_HUNG, readiness.reason)


def _ended(pod: Pod, evidence: Evidence) -> tuple[Reason, str] | None:
    found = [(crash_reason(pod, end, evidence), end) for end in failures_of(pod) if not _is_over(pod, end)]
    if not found:
        return None
    reason, end = min(found, key=lambda each: each[0].rank)
    container = pod.container(end.container)
    return reason, end.description + ("" if container is None else _restarts(container))


def crash_reason(pod: Pod, end: End, evidence: Evidence) -> Reason:
    """Which of Ready's reasons the end of a container is."""
    if end.terminated.reason == OOM_KILLED:
        return Reason.OOM_KILLED
    if end.container != ENGINE:
        return _crash_of(pod, end.container)
    if end.words is not None:
        return {"StartupTimeout": Reason.STARTUP_TIMEOUT, "EngineHung": Reason.ENGINE_HUNG}.get(end.words.reason, Reason.ENGINE_CRASHED)
    if end.terminated.exit_code == SIGKILLED and _was_killed_for_hanging(end, evidence):
        return Reason.ENGINE_HUNG
    by_code = {ExitCode.STARTUP_TIMEOUT: Reason.STARTUP_TIMEOUT, ExitCode.ENGINE_DEAD: Reason.ENGINE_HUNG}
    return by_code.get(ExitCode(end.terminated.exit_code), Reason.ENGINE_CRASHED) if end.terminated.exit_code in set(ExitCode) else Reason.ENGINE_CRASHED


def _crash_of(pod: Pod, container: str) -> Reason:
    """A container of the user's own counts with the program beside which it runs: init containers with the engine."""
    beside_api = container == API or any(each.name == container for each in pod.status.container_statuses)
    return Reason.API_CRASHED if beside_api else Reason.ENGINE_CRASHED


def _was_killed_for_hanging(end: End, evidence: Evidence) -> bool:
    """The kubelet's SIGKILL leaves no word of why: it stands in the status, or in an Event of this life of the engine."""
    known = evidence.known
    is_known = known is not None and (known.container, known.time, known.reason) == (end.container, end.time, Reason.ENGINE_HUNG)
    return is_known or evidence.was_hung or _failed_liveness(evidence.warning, end.terminated.started_at)


def _failed_liveness(warning: PodWarning | None, since: datetime | None) -> bool:
    if warning is None or (since is not None and warning.time < since):
        return False
    return warning.reason == "Unhealthy" and warning.message.startswith("Liveness probe failed")


def _is_over(pod: Pod, end: End) -> bool:
    """The container runs again, and the pod had been ready since."""
    container, ready = pod.container(end.container), pod.condition("Ready")
    if container is None or container.state.running is None or ready is None:
        return False
    began, turned = container.state.running.started_at, ready.last_transition_time
    return began is not None and turned is not None and turned > began + RECOVERED


def _restarts(container: Container) -> str:
    return f" (restart {container.restart_count})" if container.restart_count else ""
