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
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.rollout import ClusterView, begins_rollout, is_stuck
from stoker_operator.store import Key, Store
from stoker_operator.v1alpha1 import InferenceDeployment

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

VIEW_SECONDS = 10.0
"""How old a view may be that tells whether replicas that wait for a node wait for each other."""

REFUSED_SECONDS = 300.0
"""How old it may be where the same rollout is to begin again, because the API server refused it: that may go on for days."""


class ViewReader:
    """The access modes of a claim never change, and one that a pod uses cannot be replaced: it is read once for as long as pods are on nodes."""

    def __init__(self, cluster: Cluster, store: Store, defaults: Defaults) -> None:
        self._cluster = cluster
        self._store = store
        self._defaults = defaults
        self._claims: dict[Key, dict[str, KubeObject]] = {}
        self._begun: dict[Key, str] = {}
        """The template inputs of rollouts that were to begin, and have not yet."""
        self._seen: ClusterView | None = None
        self._looking = asyncio.Lock()

    async def read(self, deployment: InferenceDeployment, live: KubeObject | None, now: datetime) -> ClusterView:
        """Own pods are enough unless a rollout begins, or a replica of one finds no node. Raises ClusterError."""
        key = deployment.metadata.namespace, deployment.metadata.name
        pods = self._store.of(key, POD.kind)
        claims = await self._claims_of(deployment, pods)
        if live is not None and begins_rollout(deployment, live):
            return await self._look_for_rollout(deployment, claims, now) or ClusterView(pods, None, claims, now)
        self._begun.pop(key, None)
        if is_stuck(deployment, pods, now):
            return await self._look_again(claims, now, VIEW_SECONDS) or ClusterView(pods, None, claims, now)
        return ClusterView(pods, None, claims, now)

    def forget(self, key: Key) -> None:
        """An InferenceDeployment that is gone."""
        self._claims.pop(key, None)
        self._begun.pop(key, None)

    async def _look_for_rollout(self, deployment: InferenceDeployment, claims: list[KubeObject], now: datetime) -> ClusterView | None:
        key, inputs = (deployment.metadata.namespace, deployment.metadata.name), template_inputs(deployment)
        view = await self._look_again(claims, now, REFUSED_SECONDS) if self._begun.get(key) == inputs else await self._look(claims, now)
        self._begun[key] = inputs
        return view

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

    async def _look_again(self, claims: list[KubeObject], now: datetime, max_age: float) -> ClusterView | None:
        """However many ask: what was seen `max_age` seconds ago will do."""
        seen = self._seen
        if seen is None or (now - seen.now).total_seconds() > max_age:
            return await self._look(claims, now)
        return ClusterView(seen.pods, seen.nodes, claims, now)

    async def _claims_of(self, deployment: InferenceDeployment, pods: list[KubeObject]) -> list[KubeObject]:
        """By name. One that is not there yet is asked for each time."""
        spec, key = deployment.spec, (deployment.metadata.namespace, deployment.metadata.name)
        if spec.cache.type != "PersistentVolumeClaim" and model_claim(spec.model.uri) is None and not spec.pod_template.spec.get("volumes"):
            self._claims.pop(key, None)
            return []
        known = self._claims.get(key, {}) if any(pod["spec"].get("nodeName") for pod in pods) else {}
        found = {}
        for name in sorted(claim_names(pod_template(deployment, self._defaults)["spec"])):
            claim = known.get(name) or await self._cluster.get(PERSISTENT_VOLUME_CLAIM, key[0], name)
            if claim is not None:
                found[name] = claim
        self._claims[key] = found
        return list(found.values())


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
