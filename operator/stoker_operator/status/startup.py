"""How long the last start of a replica took, from the times that its pod has."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from stoker_operator.api_answers import Startup
from stoker_operator.names import API, ENGINE
from stoker_operator.pod_reports import UNKNOWN, PodReport
from stoker_operator.status.objects import Pod
from stoker_operator.status.replicas import Replicas
from stoker_operator.status_types import Condition, InferenceDeploymentStatus, StartupPhases, StartupStatus

LATE = timedelta(seconds=10)
"""A replacement may be created this long before Ready is seen to fall."""


def find_startup(replicas: Replicas, reports: Mapping[str, PodReport], previous: InferenceDeploymentStatus) -> StartupStatus | None:
    """Of the newest replica that became ready without a restart. A pod that was ready before and is so again has not started anew."""
    started = [pod for pod in replicas.updated if has_just_started(pod, previous)]
    if not started:
        return previous.startup
    pod = max(started, key=lambda pod: (_ready_since(pod), pod.name))
    found, known = _startup_of(pod, reports.get(pod.name, UNKNOWN).startup), previous.startup
    is_known_better = known is not None and found.last_duration_seconds == known.last_duration_seconds and found.phases.load is None
    return known if is_known_better else found


def has_just_started(pod: Pod, previous: InferenceDeploymentStatus) -> bool:
    """Whether its start is not in the status yet: such a pod is worth asking, ready as it is."""
    return _ready_since(pod) is not None and not _has_restarted(pod) and _is_new(pod, previous)


def _is_new(pod: Pod, previous: InferenceDeploymentStatus) -> bool:
    """It was created after Ready fell, or it is the first of all."""
    if previous.startup is None:
        return True
    ready: Condition | None = next((each for each in previous.conditions if each.type == "Ready"), None)
    created = pod.metadata.creation_timestamp
    if ready is None or ready.status == "True" or created is None:
        return False
    return created >= datetime.fromisoformat(ready.last_transition_time) - LATE


def _ready_since(pod: Pod) -> datetime | None:
    ready = pod.condition("Ready")
    return ready.last_transition_time if ready is not None and pod.is_ready and pod.metadata.creation_timestamp is not None else None


def _has_restarted(pod: Pod) -> bool:
    return any(container.restart_count for name in (API, ENGINE) if (container := pod.container(name)) is not None)


def _startup_of(pod: Pod, report: Startup | None) -> StartupStatus:
    """The engine's own phases are None where its pod did not tell them."""
    created, scheduled = pod.metadata.creation_timestamp, pod.condition("PodScheduled")
    scheduled_at = scheduled.last_transition_time if scheduled is not None else None
    engine = pod.container(ENGINE)
    running = engine.state.running.started_at if engine is not None and engine.state.running is not None else None
    told = {} if report is None else report.start_seconds
    phases = StartupPhases(
        schedule=_seconds(created, scheduled_at),
        pull=_seconds(scheduled_at, running),
        download=told.get("downloading"),
        load=told.get("loading"),
        warmup=round(told.get("profiling", 0.0) + told["warming_up"], 3) if "warming_up" in told else None,
    )
    return StartupStatus(last_duration_seconds=_seconds(created, _ready_since(pod)) or 0.0, phases=phases)


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())
