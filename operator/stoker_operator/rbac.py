"""What the operator asks of the API server, as data: the chart's roles are made from it, and nothing else is granted."""

from dataclasses import dataclass

from stoker_operator.cluster_kinds import (
    CHILDREN,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    INFERENCE_DEPLOYMENT,
    LEASE,
    NODE,
    OPTIONAL_CHILDREN,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    ClusterKind,
)
from stoker_operator.names import GROUP, PLURAL


@dataclass(frozen=True, slots=True)
class Grant:
    """`subresource` empty means the object itself; `names` empty means any name."""

    kind: ClusterKind
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """As a rule of a role has it, such as `inferencedeployments/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


WATCHED_NAMESPACES: tuple[Grant, ...] = (
    Grant(INFERENCE_DEPLOYMENT, ("list", "watch")),
    Grant(INFERENCE_DEPLOYMENT, ("patch",), subresource="status"),
    # A child with blockOwnerDeletion asks for this where the API server enforces it (OwnerReferencesPermissionEnforcement).
    Grant(INFERENCE_DEPLOYMENT, ("update",), subresource="finalizers"),
    # `get`: what stands where a child should be. `create` and `patch`: together they are a server-side apply.
    *(Grant(kind, ("get", "list", "watch", "create", "patch")) for kind in CHILDREN),
    *(Grant(kind, ("delete",)) for kind in OPTIONAL_CHILDREN),
    Grant(REPLICA_SET, ("list", "watch", "patch")),
    Grant(POD, ("list", "watch", "patch")),
    Grant(PERSISTENT_VOLUME_CLAIM, ("get",)),
    Grant(EVENT, ("list", "create", "patch")),
)
"""In each namespace that is watched: a Role in each, or one ClusterRole."""

WHOLE_CLUSTER: tuple[Grant, ...] = (
    Grant(NODE, ("list",)),
    Grant(POD, ("list",)),
    Grant(CUSTOM_RESOURCE_DEFINITION, ("get",), names=(f"{PLURAL}.{GROUP}",)),
)
"""Always a ClusterRole. Without it the operator works on: it surges without looking for room, and does not see that the CRD is old."""

OWN_NAMESPACE: tuple[Grant, ...] = (Grant(LEASE, ("get", "create", "update")),)
"""Where the Lease is."""
