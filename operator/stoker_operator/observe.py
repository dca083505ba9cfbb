"""What the cluster holds of one InferenceDeployment, asked for where the watches do not show it."""

from collections.abc import Iterable

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import DEPLOYMENT, POD, REPLICA_SET
from stoker_operator.crd_check import CrdCheck
from stoker_operator.decode_object import decode_status
from stoker_operator.kube_object import KubeObject
from stoker_operator.observed import ApplyProblem, Observed, Rendering
from stoker_operator.pod_reports import PodReport, PodReporter
from stoker_operator.pod_warnings import read_warnings
from stoker_operator.status.objects import read_pods
from stoker_operator.status.startup import has_just_started
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.store import Key, Store


class Observer:
    """A ready pod is asked how its start went, and nothing after."""

    def __init__(self, cluster: Cluster, store: Store, reporter: PodReporter, crd: CrdCheck) -> None:
        self._cluster = cluster
        self._store = store
        self._reporter = reporter
        self._crd = crd

    async def look(
        self, obj: KubeObject, rendering: Rendering, problems: tuple[ApplyProblem, ...], decode_error: str | None, unknown_kinds: tuple[str, ...]
    ) -> Observed:
        """After the writes. Raises ClusterError."""
        key, previous = (kube_object.namespace(obj), kube_object.name(obj)), decode_status(obj)
        deployment = self._store.get(DEPLOYMENT.kind, *key)
        ours = deployment is not None and kube_object.owner_uid(deployment) == obj["metadata"]["uid"]
        pods = _not_older(self._store.of(key, POD.kind), obj)
        return Observed(
            generation=obj["metadata"]["generation"],
            deployment=deployment if ours else None,
            rendering=rendering,
            replica_sets=tuple(self._store.of(key, REPLICA_SET.kind)),
            pods=(*pods, *_not_older(self._departed(key, pods), obj)),
            reports=await self._reports(pods, previous),
            warnings=await read_warnings(self._cluster, pods, "" if previous.last_failure is None else previous.last_failure.time),
            problems=problems,
            decode_error=decode_error,
            missing_fields=self._crd.missing,
            unknown_kinds=unknown_kinds,
        )

    def _departed(self, key: Key, pods: list[KubeObject]) -> list[KubeObject]:
        """A deleted pod counts for nothing but its last words, so that it has to say that it is deleted."""
        names = {kube_object.name(pod) for pod in pods}
        return [_as_deleted(pod) for pod in self._store.departed(key) if kube_object.name(pod) not in names]

    async def _reports(self, pods: list[KubeObject], previous: InferenceDeploymentStatus) -> dict[str, PodReport]:
        running = [pod for pod in read_pods(pods) if pod.is_running]
        return await self._reporter.ask_all({pod.name: pod.status.pod_ip for pod in running if not pod.is_ready or has_just_started(pod, previous)})


def _not_older(pods: Iterable[KubeObject], obj: KubeObject) -> list[KubeObject]:
    """Without pods of an InferenceDeployment of the same name that was there before: one may be deleted and made anew while its pods drain."""
    return [pod for pod in pods if pod["metadata"]["creationTimestamp"] >= obj["metadata"]["creationTimestamp"]]


def _as_deleted(pod: KubeObject) -> KubeObject:
    metadata = pod["metadata"]
    return {**pod, "metadata": {"deletionTimestamp": metadata["creationTimestamp"], **metadata}}
