"""The status of an InferenceDeployment, written so that what another writer puts into it at the same moment stays."""

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import INFERENCE_DEPLOYMENT
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.status.fields import is_told, leftovers, told_fields
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.store import Store


class StatusWriter:
    """Server-side apply: a condition of the gateway's is never sent, and a field that is no longer told goes."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    async def write(self, obj: KubeObject, status: InferenceDeploymentStatus) -> bool:
        """Whether it had to be written. An InferenceDeployment that is gone has none. Raises ClusterError, also where `obj` has changed meanwhile."""
        told = told_fields(status)
        if is_told(told, obj.get("status") or {}):
            return False
        try:
            written = await self._apply(obj, told)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        self._store.put(written)
        return True

    async def _apply(self, obj: KubeObject, told: KubeObject) -> KubeObject:
        # Only over what was looked at: of a status, the API server compares no uid, and what is there now may be another object of this name.
        metadata = {name: obj["metadata"][name] for name in ("name", "namespace", "resourceVersion")}
        written = await self._cluster.apply_status(
            INFERENCE_DEPLOYMENT, {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "status": told}
        )
        # What an operator that wrote by merge patches left, or a person by hand, is no apply's to take back.
        if removals := leftovers(told, written["status"]):
            written = await self._cluster.patch_status(INFERENCE_DEPLOYMENT, written, removals)
        return written
