"""The kinds of object that the operator reads and writes, and where the API server has them."""

from collections.abc import Collection
from dataclasses import dataclass

from stoker_operator.names import GROUP, KIND, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of the API. `group` is empty for the core's."""

    kind: str
    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """The path of an object, or of all of a namespace (None: of the cluster)."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return "/".join((root, *(("namespaces", namespace) if namespace else ()), self.plural, *((name,) if name else ())))


INFERENCE_DEPLOYMENT = ClusterKind(KIND, GROUP, VERSION, PLURAL)
DEPLOYMENT = ClusterKind("Deployment", "apps", "v1", "deployments")
REPLICA_SET = ClusterKind("ReplicaSet", "apps", "v1", "replicasets")
POD = ClusterKind("Pod", "", "v1", "pods")
SERVICE = ClusterKind("Service", "", "v1", "services")
SERVICE_ACCOUNT = ClusterKind("ServiceAccount", "", "v1", "serviceaccounts")
POD_DISRUPTION_BUDGET = ClusterKind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
NETWORK_POLICY = ClusterKind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
POD_MONITOR = ClusterKind("PodMonitor", "monitoring.coreos.com", "v1", "podmonitors")
INFERENCE_POOL = ClusterKind("InferencePool", "inference.networking.k8s.io", "v1", "inferencepools")
HTTP_ROUTE = ClusterKind("HTTPRoute", "gateway.networking.k8s.io", "v1", "httproutes")
PERSISTENT_VOLUME_CLAIM = ClusterKind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
NODE = ClusterKind("Node", "", "v1", "nodes")
EVENT = ClusterKind("Event", "", "v1", "events")
LEASE = ClusterKind("Lease", "coordination.k8s.io", "v1", "leases")
CUSTOM_RESOURCE_DEFINITION = ClusterKind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions")

EXTENSIONS = (POD_MONITOR, INFERENCE_POOL, HTTP_ROUTE)
"""Kinds of children that a cluster knows only where somebody has installed their definitions."""

CHILDREN = (SERVICE_ACCOUNT, SERVICE, DEPLOYMENT, POD_DISRUPTION_BUDGET, NETWORK_POLICY, *EXTENSIONS)
"""What the operator makes of an InferenceDeployment, in the order it is applied: a pod needs its ServiceAccount."""

OPTIONAL_CHILDREN = (POD_DISRUPTION_BUDGET, NETWORK_POLICY, *EXTENSIONS)
"""Those that a spec may want none of."""

OBSERVED = (REPLICA_SET, POD)
"""What others make of the children."""


def watched_kinds(extensions: Collection[ClusterKind]) -> tuple[ClusterKind, ...]:
    """What is watched, and listed anew: of EXTENSIONS only those that the API server knows."""
    return tuple(kind for kind in (INFERENCE_DEPLOYMENT, *CHILDREN, *OBSERVED) if kind not in EXTENSIONS or kind in extensions)


BY_KIND = {kind.kind: kind for kind in (INFERENCE_DEPLOYMENT, *CHILDREN, *OBSERVED)}
