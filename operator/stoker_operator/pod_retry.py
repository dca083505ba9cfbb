"""Pods that the API server refuses: the ReplicaSet's controller waits twice as long after each refusal, up to a quarter of an hour; we have it try sooner."""

import logging
from datetime import UTC, datetime

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import DEPLOYMENT
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import RETRIED_AT_ANNOTATION
from stoker_operator.store import Store

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Between two tries. Nothing tells when a quota has room again, or an admission policy lets pods pass."""


class PodRetrier:
    """Deployments pass an annotation on to their ReplicaSets, and a changed ReplicaSet is looked at at once. No pod template and no generation changes."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    async def retry(self, deployment: KubeObject, now: datetime) -> float | None:
        """Tries again if it is time; seconds until the next try, None where no pods are refused. Raises ClusterError."""
        since = _refused_since(deployment)
        if since is None:
            return None
        rest = RETRY_SECONDS - (now - since).total_seconds()
        if rest > 0:
            return rest
        annotations = {RETRIED_AT_ANNOTATION: now.astimezone(UTC).isoformat(timespec="seconds")}
        namespace, name = kube_object.namespace(deployment), kube_object.name(deployment)
        self._store.put(await self._cluster.merge(DEPLOYMENT, namespace, name, {"metadata": {"annotations": annotations}}))
        logger.info("The API server refused pods; they are tried again")
        return RETRY_SECONDS


def _refused_since(deployment: KubeObject) -> datetime | None:
    """When its pods were first refused, or last tried again by us; None where they are not refused."""
    failure = kube_object.condition(deployment, "ReplicaFailure")
    if failure is None or failure.get("status") != "True":
        return None
    retried_at = _moment(kube_object.annotations(deployment).get(RETRIED_AT_ANNOTATION, ""))
    return max(datetime.fromisoformat(failure["lastTransitionTime"]), retried_at)


def _moment(text: str) -> datetime:
    """Long ago where it cannot be read: an annotation is anybody's to write."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
