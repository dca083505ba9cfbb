"""Kubernetes Events about an InferenceDeployment. The same words again within a while count up one Event instead of making another."""

import logging
import time
from datetime import UTC, datetime

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import EVENT
from stoker_operator.errors import ClusterError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import FIELD_MANAGER
from stoker_operator.status.notices import Notice
from stoker_operator.status.text import timestamp

logger = logging.getLogger(__name__)

SAME_SECONDS = 600.0
MAX_REMEMBERED = 4096


class EventPoster:
    """An Event is worth no retry and fails nothing: what it tells stands in the status, too."""

    def __init__(self, cluster: Cluster, reporter: str) -> None:
        self._cluster = cluster
        self._reporter = reporter
        self._posted: dict[tuple[str, str, str], tuple[str, int, float]] = {}

    async def post(self, regarding: KubeObject, notice: Notice) -> None:
        """`regarding` is the InferenceDeployment."""
        logger.log(logging.WARNING if notice.type == "Warning" else logging.INFO, "%s: %s", notice.reason, notice.message)
        same = regarding["metadata"]["uid"], notice.reason, notice.message
        name, count, posted_at = self._posted.get(same, ("", 0, 0.0))
        try:
            if count and time.monotonic() - posted_at < SAME_SECONDS:
                await self._cluster.merge(EVENT, kube_object.namespace(regarding), name, {"count": count + 1, "lastTimestamp": timestamp(datetime.now(UTC))})
            else:
                name, count = f"{kube_object.name(regarding)}.{time.time_ns():x}", 0
                await self._cluster.create(EVENT, self._event(name, regarding, notice))
        except ClusterError as error:
            logger.info("The Event %s was not taken: %s", notice.reason, error)
            return
        self._remember(same, (name, count + 1, time.monotonic()))

    def _remember(self, same: tuple[str, str, str], posted: tuple[str, int, float]) -> None:
        self._posted.pop(same, None)
        self._posted[same] = posted
        if len(self._posted) > MAX_REMEMBERED:
            self._posted.pop(next(iter(self._posted)))

    def _event(self, name: str, regarding: KubeObject, notice: Notice) -> KubeObject:
        metadata = regarding["metadata"]
        involved = {field: metadata[field] for field in ("name", "namespace", "uid", "resourceVersion")}
        now = timestamp(datetime.now(UTC))
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {"apiVersion": regarding["apiVersion"], "kind": regarding["kind"], **involved},
            "type": notice.type,
            "reason": notice.reason,
            "message": notice.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._reporter,
            "source": {"component": FIELD_MANAGER},
        }
