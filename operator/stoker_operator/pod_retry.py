"""Pods that the API server refuses: the ReplicaSet's controller waits twice as long after each refusal, up to a quarter of an hour; we have it try sooner."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import REPLICA_SET
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import RETRIED_AT_ANNOTATION
from stoker_operator.store import Store

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Between two tries. Nothing tells when a quota has room again, or an admission policy lets pods pass."""


class PodRetrier:
    """A ReplicaSet of which anything changes is looked at at once. (An annotation of a Deployment would do, too, but makes a new generation of it.)"""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    async def retry(self, replica_sets: Iterable[KubeObject], now: datetime) -> float | None:
        """Tries again where it is time; seconds until the next try, None where no pods are refused. Raises ClusterError."""
        waits = [await self._retry(each, since, now) for each in replica_sets if (since := _refused_since(each)) is not None]
        return min(waits, default=None)

    async def _retry(self, replica_set: KubeObject, since: datetime, now: datetime) -> float:
        rest = RETRY_SECONDS - (now - since).total_seconds()
        if rest > 0:
            return rest
        annotations = {RETRIED_AT_ANNOTATION: now.astimezone(UTC).isoformat(timespec="seconds")}
        namespace, name = kube_object.namespace(replica_set), kube_object.name(replica_set)
        self._store.put(await self._cluster.merge(REPLICA_SET, namespace, name, {"metadata": {"annotations": annotations}}))
        logger.info("The API server refused pods of %s; they are tried again", name)
        return RETRY_SECONDS


def _refused_since(replica_set: KubeObject) -> datetime | None:
    """When its pods were first refused, or last tried again by us; None where they are not refused."""
    failure = kube_object.condition(replica_set, "ReplicaFailure")
    if failure is None or failure.get("status") != "True":
        return None
    retried_at = _moment(kube_object.annotations(replica_set).get(RETRIED_AT_ANNOTATION, ""))
    return max(datetime.fromisoformat(failure["lastTransitionTime"]), retried_at)


def _moment(text: str) -> datetime:
    """Long ago where it cannot be read: an annotation is anybody's to write."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
