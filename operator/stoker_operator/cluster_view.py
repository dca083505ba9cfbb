"""What a rollout's strategy is decided on: read when a rollout begins, never watched."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import NODE, PERSISTENT_VOLUME_CLAIM, POD, ClusterKind
from stoker_operator.errors import ApiError
from stoker_operator.kube_object import KubeObject
from stoker_operator.plan import model_claim
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.rollout import ClusterView, begins_rollout, is_stuck
from stoker_operator.store import Store
from stoker_operator.v1alpha1 import InferenceDeployment

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

VIEW_SECONDS = 10.0
"""How old a view may be that tells whether replicas that wait for a node wait for each other."""


class ViewReader:
    """Access modes of a claim never change, so that each claim is read once."""

    def __init__(self, cluster: Cluster, store: Store, defaults: Defaults) -> None:
        self._cluster = cluster
        self._store = store
        self._defaults = defaults
        self._claims: dict[tuple[str, str], KubeObject] = {}
        self._seen: ClusterView | None = None
        self._looking = asyncio.Lock()

    async def read(self, deployment: InferenceDeployment, live: KubeObject | None, now: datetime) -> ClusterView:
        """Own pods are enough unless a rollout begins, or a replica of one finds no node. Raises ClusterError."""
        key = deployment.metadata.namespace, deployment.metadata.name
        claims = await self._claims_of(deployment)
        pods = self._store.of(key, POD.kind)
        if live is not None and begins_rollout(deployment, live):
            return await self._look(claims, now) or ClusterView(pods, None, claims, now)
        if is_stuck(deployment, pods, now):
            return await self._look_again(claims, now) or ClusterView(pods, None, claims, now)
        return ClusterView(pods, None, claims, now)

    async def _look(self, claims: list[KubeObject], now: datetime) -> ClusterView | None:
        """None where the cluster's nodes and pods may not be read. Of many rollouts that begin at once, all but two share a look."""
        async with self._looking:
            if self._seen is None or self._seen.now < now:
                began = datetime.now(UTC)
                try:
                    nodes = await self._read(NODE, node_in_brief)
                    pods = await self._read(POD, pod_in_brief)
                except ApiError as error:
                    if error.status != 403:
                        raise
                    return None
                self._seen = ClusterView(pods, nodes, (), began)
            return ClusterView(self._seen.pods, self._seen.nodes, claims, now)

    async def _read(self, kind: ClusterKind, wanted: Callable[[KubeObject], KubeObject]) -> list[KubeObject]:
        return [wanted(obj) async for page in self._cluster.pages(kind, None) for obj in page.items]

    async def _look_again(self, claims: list[KubeObject], now: datetime) -> ClusterView | None:
        """However many replicas have no node: what was seen a moment ago will do."""
        seen = self._seen
        if seen is None or (now - seen.now).total_seconds() > VIEW_SECONDS:
            return await self._look(claims, now)
        return ClusterView(seen.pods, seen.nodes, claims, now)

    async def _claims_of(self, deployment: InferenceDeployment) -> list[KubeObject]:
        spec, namespace = deployment.spec, deployment.metadata.namespace
        if spec.cache.type != "PersistentVolumeClaim" and model_claim(spec.model.uri) is None and not spec.pod_template.spec.get("volumes"):
            return []
        names = claim_names(pod_template(deployment, self._defaults)["spec"])
        return [claim for name in sorted(names) if (claim := await self._claim(namespace, name)) is not None]

    async def _claim(self, namespace: str, name: str) -> KubeObject | None:
        if (namespace, name) not in self._claims:
            claim = await self._cluster.get(PERSISTENT_VOLUME_CLAIM, namespace, name)
            if claim is None:
                return None
            self._claims[namespace, name] = claim
        return self._claims[namespace, name]


def claim_names(pod_spec: KubeObject) -> set[str]:
    """The claims that a pod mounts. Its volumes are what a user wrote: what is no volume names none, and the API server refuses it."""
    volumes = pod_spec.get("volumes")
    sources = [volume.get("persistentVolumeClaim") for volume in volumes if isinstance(volume, dict)] if isinstance(volumes, list) else []
    names = [source.get("claimName") for source in sources if isinstance(source, dict)]
    return {name for name in names if isinstance(name, str) and OBJECT_NAME.fullmatch(name)}


def pod_in_brief(pod: KubeObject) -> KubeObject:
    """What a decision looks at, a tenth of a pod: a cluster may have tens of thousands."""
    spec = pod["spec"]
    containers = {field: [_some(each, "resources", "restartPolicy") for each in spec.get(field) or ()] for field in ("initContainers", "containers")}
    return {
        "metadata": _some(pod["metadata"], "name", "namespace", "labels", "creationTimestamp", "deletionTimestamp"),
        "spec": {**_some(spec, "nodeName", "overhead"), **containers},
        "status": _some(pod.get("status") or {}, "phase", "conditions"),
    }


def node_in_brief(node: KubeObject) -> KubeObject:
    """The same of a node: most of one is the list of its images."""
    return {
        "metadata": _some(node["metadata"], "name", "labels"),
        "spec": _some(node["spec"], "unschedulable", "taints"),
        "status": _some(node.get("status") or {}, "allocatable", "conditions"),
    }


def _some(fields: KubeObject, *names: str) -> KubeObject:
    return {name: fields[name] for name in names if name in fields}
