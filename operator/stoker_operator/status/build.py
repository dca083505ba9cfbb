"""build_status: the whole status of one InferenceDeployment."""

from datetime import datetime

from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.observed import Observed
from stoker_operator.pod_reports import UNKNOWN
from stoker_operator.spec_sections import AcceleratorConfig
from stoker_operator.status.conditions import date_conditions, find_conditions
from stoker_operator.status.last_events import find_last_drain, find_last_failure
from stoker_operator.status.model import find_model, find_model_cached
from stoker_operator.status.objects import Pod
from stoker_operator.status.pod_failure import Evidence
from stoker_operator.status.reasons import Reason
from stoker_operator.status.replicas import read_replicas
from stoker_operator.status.startup import find_startup
from stoker_operator.status.verdict import judge, pod_failures
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.v1alpha1 import InferenceDeployment


def build_status(deployment: InferenceDeployment | None, observed: Observed, previous: InferenceDeploymentStatus, now: datetime) -> InferenceDeploymentStatus:
    """Equal input gives an equal status; a condition's lastTransitionTime changes with its status alone. `deployment` None: it could not be read."""
    replicas = read_replicas(observed, None if deployment is None else deployment.spec.replicas)
    accelerator = AcceleratorConfig() if deployment is None else deployment.spec.accelerator
    evidence = {pod.name: _evidence(pod, observed, previous, accelerator) for pod in replicas.pods}
    failures = pod_failures(observed, replicas, evidence)
    verdict = judge(deployment, observed, replicas, failures)
    cached = find_model_cached(deployment, observed, replicas)
    findings = (*find_conditions(observed, replicas, verdict, failures), *(() if cached is None else (cached,)))
    return InferenceDeploymentStatus(
        observed_generation=observed.generation,
        replicas=replicas.total,
        ready_replicas=replicas.num_ready,
        updated_replicas=replicas.num_updated,
        available_replicas=replicas.num_available,
        unavailable_replicas=max(0, replicas.desired - replicas.num_available),
        selector=previous.selector if deployment is None else f"{INFERENCE_DEPLOYMENT_LABEL}={deployment.metadata.name}",
        url=previous.url if deployment is None else f"http://{deployment.metadata.name}.{deployment.metadata.namespace}.svc",
        model=find_model(deployment, observed, replicas, previous.model),
        startup=find_startup(replicas, observed.reports, previous),
        last_failure=find_last_failure(replicas.pods, evidence, previous.last_failure),
        last_drain=find_last_drain(replicas.pods, previous.last_drain),
        conditions=date_conditions(findings, previous.conditions, observed.generation, now),
    )


def _evidence(pod: Pod, observed: Observed, previous: InferenceDeploymentStatus, accelerator: AcceleratorConfig) -> Evidence:
    failure = previous.last_failure
    known = failure if failure is not None and failure.pod == pod.name else None
    return Evidence(observed.reports.get(pod.name, UNKNOWN), observed.warnings.get(pod.name), accelerator, _was_hung(pod, previous), known)


def _was_hung(pod: Pod, previous: InferenceDeploymentStatus) -> bool:
    return any(each.type == "Ready" and each.reason == Reason.ENGINE_HUNG and f"Pod {pod.name}:" in each.message for each in previous.conditions)
