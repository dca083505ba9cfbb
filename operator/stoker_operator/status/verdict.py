"""Why an InferenceDeployment is Ready, or the first reason why not."""

from dataclasses import dataclass

from stoker_operator.errors import ApiError
from stoker_operator.names import ENGINE
from stoker_operator.observed import NAME_CONFLICT, ApplyProblem, Observed
from stoker_operator.status.objects import Pod
from stoker_operator.status.pod_failure import Evidence, PodFailure, find_failure
from stoker_operator.status.reasons import Reason
from stoker_operator.status.replicas import Replicas
from stoker_operator.status.text import one_line
from stoker_operator.v1alpha1 import InferenceDeployment

QUOTA = "exceeded quota"
"""How the API server's quota plugin begins its refusals."""

MAX_CONDITION_MESSAGE = 32768


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rejection` is the reason and message of SpecAccepted: its reason may be finer than Ready's. None: everything was taken."""

    reason: Reason
    message: str
    rejection: tuple[str, str] | None = None

    @property
    def is_ready(self) -> bool:
        return self.reason in (Reason.ALL_REPLICAS_READY, Reason.SCALED_TO_ZERO)


def judge(deployment: InferenceDeployment | None, observed: Observed, replicas: Replicas, failures: tuple[PodFailure, ...]) -> Verdict:
    """`failures` are those of the pods of the present template."""
    if observed.decode_error is not None:
        return _rejected(Reason.INVALID_SPEC, Reason.INVALID_SPEC, observed.decode_error)
    if observed.problems:
        problem = observed.problems[0]
        return _rejected(_reason_of(problem), NAME_CONFLICT if problem.reason == NAME_CONFLICT else _reason_of(problem), problem.message)
    if (refusal := _refused_pods(replicas)) is not None:
        return refusal
    if failures:
        return _failed(failures)
    if replicas.is_complete:
        return _complete(replicas)
    if deployment is not None and deployment.spec.paused:
        return Verdict(Reason.PAUSED, f"The rollout is paused: {_counts(replicas)}. Set spec.paused to false to go on.")
    return _in_progress(observed, replicas)


def pod_failures(observed: Observed, replicas: Replicas, evidence: dict[str, Evidence]) -> tuple[PodFailure, ...]:
    """Of the pods of the present template, the most telling first."""
    found = (find_failure(pod, evidence[pod.name]) for pod in replicas.updated)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.reason.rank, each.pod)))


def _rejected(reason: Reason, accepted_reason: str, message: str) -> Verdict:
    return Verdict(reason, one_line(message), (accepted_reason, message[:MAX_CONDITION_MESSAGE]))


def _reason_of(problem: ApplyProblem) -> Reason:
    if QUOTA in problem.message:
        return Reason.QUOTA_EXCEEDED
    return Reason.INVALID_SPEC if problem.reason in (ApiError.INVALID, "BadRequest") else Reason.ADMISSION_REJECTED


def _refused_pods(replicas: Replicas) -> Verdict | None:
    """Pods that the API server does not take are told at the Deployment, which took their template."""
    failure = replicas.deployment.condition("ReplicaFailure") if replicas.deployment is not None and replicas.is_current else None
    if failure is None or failure.status != "True":
        return None
    reason = Reason.QUOTA_EXCEEDED if QUOTA in failure.message else Reason.ADMISSION_REJECTED
    return _rejected(reason, reason, failure.message)


def _failed(failures: tuple[PodFailure, ...]) -> Verdict:
    several = f"{len(failures)} pods fail. " if len(failures) > 1 else ""
    return Verdict(failures[0].reason, one_line(several + failures[0].message))


def _complete(replicas: Replicas) -> Verdict:
    if replicas.desired == 0:
        return Verdict(Reason.SCALED_TO_ZERO, "No replica is wanted.")
    return Verdict(Reason.ALL_REPLICAS_READY, f"{replicas.num_available} of {replicas.desired} replicas are ready.")


def _in_progress(observed: Observed, replicas: Replicas) -> Verdict:
    loading = [f"pod {pod.name}: {words}" for pod in replicas.updated if not pod.is_ready and (words := _loading_words(observed, pod))]
    words = f"; {loading[0]}" if loading else ""
    reason = Reason.MODEL_LOADING if loading and not replicas.old else Reason.ROLLING_OUT
    return Verdict(reason, one_line(f"{_counts(replicas)}{words}."))


def _counts(replicas: Replicas) -> str:
    # What a watch has not shown yet makes no pod old.
    knows_updated = replicas.is_current and replicas.num_updated <= len(replicas.updated)
    old = f", {len(replicas.old)} are of an earlier pod template" if replicas.old and knows_updated else ""
    return f"{replicas.num_available} of {replicas.desired} replicas are available, {replicas.num_updated} are updated{old}"


def _loading_words(observed: Observed, pod: Pod) -> str:
    """Empty for a pod whose engine does not run yet. Progress is told in tenths: each new message is a write."""
    engine = pod.container(ENGINE)
    if engine is None or engine.state.running is None:
        return ""
    report = observed.reports.get(pod.name)
    if report is None or report.startup is None:
        return "the api does not answer yet"
    startup = report.startup
    progress = f" ({int(startup.progress * 10) * 10} %)" if 0 < startup.progress < 1 else ""
    return startup.phase.replace("_", " ") + progress
