"""The conditions of an InferenceDeployment, each from what is known, sorted by type. Routable is the gateway's to write."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from stoker_operator.observed import Observed
from stoker_operator.status.objects import Pod
from stoker_operator.status.pod_failure import PodFailure
from stoker_operator.status.reasons import Reason
from stoker_operator.status.replicas import Replicas
from stoker_operator.status.text import one_line, timestamp
from stoker_operator.status.verdict import Verdict
from stoker_operator.status_types import Condition

OWN_TYPES = frozenset({"Available", "Degraded", "EngineConnected", "ModelCached", "Progressing", "Ready", "SpecAccepted"})
CONNECTED_STATES = frozenset({"ready", "busy", "sleeping", "draining"})
COMPLETE = "NewReplicaSetAvailable"


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition before it is dated. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str


def find_conditions(observed: Observed, replicas: Replicas, verdict: Verdict, failures: tuple[PodFailure, ...]) -> tuple[Finding, ...]:
    """All but ModelCached, which only a model that is downloaded has."""
    return (
        _available(replicas, verdict),
        _degraded(replicas, verdict),
        _engine_connected(observed, replicas, failures),
        _progressing(replicas, verdict),
        Finding("Ready", str(verdict.is_ready), verdict.reason, verdict.message),
        _spec_accepted(verdict, observed),
    )


def date_conditions(findings: Iterable[Finding], previous: tuple[Condition, ...], generation: int, now: datetime) -> tuple[Condition, ...]:
    """Sorted by type. A condition whose status is as before keeps the time of its last transition; those of others are not ours to tell."""
    before = {condition.type: condition for condition in previous}
    dated = []
    for finding in findings:
        was = before.get(finding.type)
        since = was.last_transition_time if was is not None and was.status == finding.status else timestamp(now)
        dated.append(
            Condition(
                type=finding.type,
                status=finding.status,  # type: ignore[arg-type]
                reason=str(finding.reason),
                message=finding.message,
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return tuple(sorted(dated, key=lambda each: each.type))


def _available(replicas: Replicas, verdict: Verdict) -> Finding:
    message = f"{replicas.num_available} of {replicas.desired} replicas are available, {replicas.num_needed} are needed."
    if replicas.num_available >= replicas.num_needed:
        return Finding("Available", "True", "MinimumReplicasAvailable" if replicas.desired else Reason.SCALED_TO_ZERO, message)
    reason = verdict.reason if verdict.reason.is_failure else "MinimumReplicasUnavailable"
    return Finding("Available", "False", reason, _with_cause(message, verdict))


def _degraded(replicas: Replicas, verdict: Verdict) -> Finding:
    available = replicas.num_available
    serves_less = 0 < available < replicas.desired
    message = f"{available} of {replicas.desired} replicas serve."
    return Finding("Degraded", str(serves_less), verdict.reason, _with_cause(message, verdict) if serves_less else message)


def _with_cause(message: str, verdict: Verdict) -> str:
    return one_line(f"{message} {verdict.message}") if verdict.reason.is_failure else message


def _progressing(replicas: Replicas, verdict: Verdict) -> Finding:
    """As a Deployment's, but False once a rollout is complete, so that True always means that something goes on and has a deadline."""
    if verdict.rejection is not None and not replicas.is_current:
        return Finding("Progressing", "False", verdict.reason, verdict.message)
    if replicas.is_complete:
        return Finding("Progressing", "False", COMPLETE, "The rollout is complete.")
    condition = replicas.deployment.condition("Progressing") if replicas.deployment is not None and replicas.is_current else None
    if condition is None:
        return Finding("Progressing", "True", "ReplicaSetUpdated", "The Deployment's controller has not seen this generation yet.")
    status = "False" if condition.reason == COMPLETE else condition.status
    return Finding("Progressing", status, condition.reason or "Unknown", one_line(condition.message))


def _engine_connected(observed: Observed, replicas: Replicas, failures: tuple[PodFailure, ...]) -> Finding:
    pods = (*replicas.updated, *replicas.old)
    num_connected = sum(_is_connected(observed, pod) for pod in pods)
    message = f"{num_connected} of {max(replicas.desired, len(pods))} engines are connected."
    if num_connected >= max(replicas.desired, len(pods)):
        return Finding("EngineConnected", "True", "EnginesConnected" if replicas.desired else Reason.SCALED_TO_ZERO, message)
    if any(failure.reason is Reason.STARTUP_TIMEOUT for failure in failures):
        return Finding("EngineConnected", "False", Reason.STARTUP_TIMEOUT, message)
    mismatch = next((words for pod in pods if (words := _protocol_words(observed, pod))), "")
    return Finding("EngineConnected", "False", "ProtocolMismatch" if mismatch else "Handshaking", one_line(f"{message} {mismatch}"))


def _is_connected(observed: Observed, pod: Pod) -> bool:
    report = observed.reports.get(pod.name)
    readiness = None if report is None else report.readiness
    return pod.is_ready or (readiness is not None and readiness.engine in CONNECTED_STATES)


def _protocol_words(observed: Observed, pod: Pod) -> str:
    """What an api says whose engine speaks another version of the protocol."""
    report = observed.reports.get(pod.name)
    startup = None if report is None else report.startup
    return startup.message if startup is not None and startup.message.startswith("protocol ") else ""


def _spec_accepted(verdict: Verdict, observed: Observed) -> Finding:
    if verdict.rejection is not None:
        return Finding("SpecAccepted", "False", *verdict.rejection)
    if observed.missing_fields:
        words = f"The CustomResourceDefinition is older than the operator: the API server drops {', '.join(observed.missing_fields)}; apply `stoker crd`."
        return Finding("SpecAccepted", "True", "OutdatedDefinition", one_line(words))
    if observed.unknown_kinds:
        words = f"Not made yet: {', '.join(observed.unknown_kinds)}. The cluster does not know the kind, or the operator has no right to it."
        return Finding("SpecAccepted", "True", "UnknownKind", one_line(words))
    return Finding("SpecAccepted", "True", "Accepted", "The API server took every object.")
