"""What the children are made from besides the spec."""

from dataclasses import dataclass
from typing import Literal

from stoker_operator.cluster_kinds import ClusterKind
from stoker_operator.kube_object import KubeObject
from stoker_operator.pod_spec_types import PullPolicy


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the operator runs where a spec names no image or pull policy."""

    engine_image: str
    api_image: str
    image_pull_policy: PullPolicy


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Stoker's gateway: its Service."""

    name: str
    namespace: str
    port: int


@dataclass(frozen=True, slots=True)
class DeploymentStrategy:
    """How the Deployment replaces its pods. The numbers are those of RollingUpdate: a count, or a share such as `25%`."""

    type: Literal["RollingUpdate", "Recreate"]
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


@dataclass(frozen=True, slots=True)
class RenderContext:
    """`uid` is the InferenceDeployment's; `rendered_by` the hash of this operator and its defaults; `live` the Deployment as it is, if there is one;
    `extensions` the kinds besides Kubernetes' own that can be made here.
    """

    uid: str
    defaults: Defaults
    gateway: GatewayAddress
    operator_namespace: str
    rendered_by: str
    strategy: DeploymentStrategy
    live: KubeObject | None = None
    extensions: frozenset[ClusterKind] = frozenset()
