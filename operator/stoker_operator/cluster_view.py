"""What a rollout's strategy is decided on: read when a rollout begins, never watched."""

from datetime import datetime

from stoker_operator import kube_object
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import NODE, PERSISTENT_VOLUME_CLAIM, POD
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import TEMPLATE_INPUTS_ANNOTATION
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.rollout import ClusterView
from stoker_operator.store import Store
from stoker_operator.v1alpha1 import InferenceDeployment


class ViewReader:
    """Access modes of a claim never change, so that each claim is read once."""

    def __init__(self, cluster: Cluster, store: Store, defaults: Defaults) -> None:
        self._cluster = cluster
        self._store = store
        self._defaults = defaults
        self._claims: dict[tuple[str, str], KubeObject] = {}

    async def read(self, deployment: InferenceDeployment, live: KubeObject | None, now: datetime) -> ClusterView:
        """Own pods are enough unless a rollout begins. Raises ClusterError."""
        key = deployment.metadata.namespace, deployment.metadata.name
        claims = await self._claims_of(deployment)
        pods, nodes = self._store.of(key, POD.kind), None
        if _begins(deployment, live):
            try:
                nodes = (await self._cluster.list(NODE, None)).items
                pods = (await self._cluster.list(POD, None)).items
            except ApiError as error:
                if error.status != 403:
                    raise
                nodes = None
        return ClusterView(pods, nodes, claims, now)

    async def _claims_of(self, deployment: InferenceDeployment) -> list[KubeObject]:
        spec, namespace = deployment.spec, deployment.metadata.namespace
        if spec.cache.type != "PersistentVolumeClaim" and not spec.model.uri.startswith("pvc://") and not spec.pod_template.spec.get("volumes"):
            return []
        volumes = pod_template(deployment, self._defaults)["spec"].get("volumes") or ()
        sources = [volume.get("persistentVolumeClaim") or {} for volume in volumes if isinstance(volume, dict)]
        names = {str(source["claimName"]) for source in sources if "claimName" in source}
        return [claim for name in sorted(names) if (claim := await self._claim(namespace, name)) is not None]

    async def _claim(self, namespace: str, name: str) -> KubeObject | None:
        if (namespace, name) not in self._claims:
            claim = await self._cluster.get(PERSISTENT_VOLUME_CLAIM, namespace, name)
            if claim is None:
                return None
            self._claims[namespace, name] = claim
        return self._claims[namespace, name]


def _begins(deployment: InferenceDeployment, live: KubeObject | None) -> bool:
    return live is not None and kube_object.annotations(live).get(TEMPLATE_INPUTS_ANNOTATION) != template_inputs(deployment)
