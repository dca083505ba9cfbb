"""Before replicas are taken away: the pods' own loads become their deletion costs, so that the least busy one goes first."""

import logging

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import POD
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.pod_reports import PodReport, PodReporter
from stoker_operator.settle import settle
from stoker_operator.store import Store

logger = logging.getLogger(__name__)

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"


class PodPricer:
    """Written once for each scale-in, never periodically. A pod that does not answer costs nothing."""

    def __init__(self, cluster: Cluster, store: Store, reporter: PodReporter) -> None:
        self._cluster = cluster
        self._store = store
        self._reporter = reporter

    async def before(self, desired: KubeObject, live: KubeObject | None) -> None:
        """Before the Deployment `live` becomes `desired`: does nothing unless that takes some of the replicas away, not all. Raises ClusterError."""
        if live is None or not 0 < desired["spec"]["replicas"] < live["spec"].get("replicas", 1):
            return
        key = kube_object.namespace(desired), kube_object.name(desired)
        pods = {kube_object.name(pod): pod for pod in self._store.of(key, POD.kind) if "deletionTimestamp" not in pod["metadata"]}
        reports = await self._reporter.ask_all({name: (pod.get("status") or {}).get("podIP", "") for name, pod in pods.items()})
        await settle(self._price(pods[name], report) for name, report in reports.items())

    async def _price(self, pod: KubeObject, report: PodReport) -> None:
        name, cost = kube_object.name(pod), str(report.num_in_flight)
        if kube_object.annotations(pod).get(DELETION_COST_ANNOTATION, "0") == cost:
            return
        patch = {"metadata": {"annotations": {DELETION_COST_ANNOTATION: cost}}}
        try:
            self._store.put(await self._cluster.merge(POD, kube_object.namespace(pod), name, patch))
        except ApiError as error:
            if error.passing:
                raise
            logger.warning("Cannot write the deletion cost of pod %s: %s", name, error)
            return
        logger.info("Wrote the deletion cost of pod %s: %s requests in flight", name, cost)
