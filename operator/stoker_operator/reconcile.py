"""One InferenceDeployment: what it asks for → what the cluster holds → its status. Level-triggered: nothing is remembered from one time to the next."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from stoker_operator import kube_object
from stoker_operator.apply import Applied, Applier
from stoker_operator.cluster_kinds import DEPLOYMENT, INFERENCE_DEPLOYMENT
from stoker_operator.condition_gauge import ConditionGauge
from stoker_operator.decode_object import decode_inference_deployment, decode_status
from stoker_operator.errors import ClusterError, InvalidSpecError
from stoker_operator.event_poster import EventPoster
from stoker_operator.kube_object import KubeObject
from stoker_operator.observe import Observer
from stoker_operator.observed import Observed, Rendering
from stoker_operator.pod_retry import PodRetrier
from stoker_operator.pod_warnings import is_silent
from stoker_operator.render import Renderer
from stoker_operator.status.build import build_status
from stoker_operator.status.notices import notices
from stoker_operator.status.requeue import requeue_after
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.status_writer import StatusWriter
from stoker_operator.store import Key, Store
from stoker_operator.v1alpha1 import InferenceDeployment

logger = logging.getLogger(__name__)

PROBLEM_SECONDS = 15.0
"""Between two tries of what the API server refuses: a quota, an admission policy, a name that another object has."""

SILENT_SECONDS = 5.0
"""Between two looks at a pod of which only Events can say what holds it up."""

WAITING_SECONDS = 11.0
"""A pod that has no node by then is stuck, which a rollout may have to answer."""


class Reconciler:
    """Raises ClusterError for what is worth another try soon."""

    def __init__(self, store: Store, parts: "Parts") -> None:
        self._store = store
        self._parts = parts

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until it must be looked at again; None where only events can change anything."""
        obj = self._store.get(INFERENCE_DEPLOYMENT.kind, *key)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            # Its ownerReferences take the children along.
            self._forget(key)
            return None
        deployment, decode_error = _decode(obj)
        applied = Applied() if deployment is None else await self._apply(obj, deployment)
        unknown = () if deployment is None else self._parts.renderer.unknown_kinds(deployment)
        observed = await self._parts.observer.look(obj, _rendering(obj, deployment, applied), applied.problems, decode_error, unknown)
        await self._report(obj, deployment, observed)
        self._store.forget_departed(key, observed.pods)
        if applied.failure is not None:
            # It kept nobody from learning how the pods are.
            raise applied.failure
        return _soonest(_next_look(observed), await self._parts.retrier.retry(observed.replica_sets, datetime.now(UTC)))

    def _forget(self, key: Key) -> None:
        """Names come and go for as long as the operator runs."""
        self._store.forget_departed(key, self._store.departed(key))
        self._parts.renderer.forget(key)
        self._parts.applier.forget(key)
        self._parts.gauge.forget(key)

    async def _apply(self, obj: KubeObject, deployment: InferenceDeployment) -> Applied:
        key, uid = (deployment.metadata.namespace, deployment.metadata.name), obj["metadata"]["uid"]
        try:
            children = await self._parts.renderer.render(deployment, uid, self._store.get(DEPLOYMENT.kind, *key))
        except ClusterError as error:
            return Applied(failure=error, is_behind=True)
        return await self._parts.applier.apply_all(key, uid, children)

    async def _report(self, obj: KubeObject, deployment: InferenceDeployment | None, observed: Observed) -> None:
        previous = decode_status(obj)
        status = build_status(deployment, observed, previous, datetime.now(UTC))
        self._parts.gauge.tell((kube_object.namespace(obj), kube_object.name(obj)), status)
        if not await self._parts.status_writer.write(obj, status):
            return
        logger.info("Status: %s", _summary(status))
        for notice in notices(previous, status):
            await self._parts.events.post(obj, notice)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reconciliation is made of, in the order it is used."""

    renderer: Renderer
    applier: Applier
    observer: Observer
    gauge: ConditionGauge
    status_writer: StatusWriter
    events: EventPoster
    retrier: PodRetrier


def _decode(obj: KubeObject) -> tuple[InferenceDeployment | None, str | None]:
    try:
        return decode_inference_deployment(obj), None
    except InvalidSpecError as error:
        return None, str(error)


def _rendering(obj: KubeObject, deployment: InferenceDeployment | None, applied: Applied) -> Rendering:
    """An error that may pass takes nothing from what was Ready for this very generation; what was not does not become so before everything is written."""
    if deployment is None or any(problem.kind == DEPLOYMENT.kind for problem in applied.problems):
        return Rendering.OUTDATED
    return Rendering.OUTDATED if applied.is_behind and not _is_ready(obj) else Rendering.CURRENT


def _is_ready(obj: KubeObject) -> bool:
    ready = kube_object.condition(obj, "Ready") or {}
    return (ready.get("status"), ready.get("observedGeneration")) == ("True", obj["metadata"]["generation"])


def _summary(status: InferenceDeploymentStatus) -> str:
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    state = "no Ready condition" if ready is None else f"Ready {ready.status} ({ready.reason})"
    return f"{state}, {status.ready_replicas} of {status.replicas} replicas ready, generation {status.observed_generation}"


def _next_look(observed: Observed) -> float | None:
    return _soonest(
        requeue_after(observed),
        PROBLEM_SECONDS if observed.problems else None,
        SILENT_SECONDS if any(is_silent(pod) for pod in observed.pods) else None,
        WAITING_SECONDS if any(_has_no_node(pod) for pod in observed.pods) else None,
    )


def _soonest(*asked: float | None) -> float | None:
    return min((seconds for seconds in asked if seconds is not None), default=None)


def _has_no_node(pod: KubeObject) -> bool:
    return not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
