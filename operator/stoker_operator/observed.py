"""Observed: what the cluster holds of one InferenceDeployment, as one reconcile saw it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from stoker_operator.kube_object import KubeObject
from stoker_operator.pod_reports import PodReport

NAME_CONFLICT = "NameConflict"
"""`ApplyProblem.reason` of a child's name that an object of somebody else has."""


class Rendering(enum.Enum):
    """Whether the live Deployment is what the present generation of the InferenceDeployment asks for."""

    CURRENT = "current"
    OUTDATED = "outdated"


@dataclass(frozen=True, slots=True)
class ApplyProblem:
    """A child that the API server did not take. `reason` is that of its answer (`Forbidden`, `Invalid`) or NAME_CONFLICT, `message` its words."""

    kind: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodWarning:
    """The newest Warning event about a pod, last seen at `time`: what the kubelet says of mounts and probes stands nowhere else."""

    reason: str
    message: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """`pods` are those of the selector, with terminating ones and those just deleted; `reports` and `warnings` are by pod name.

    `rendering` speaks of the Deployment as it is after the reconcile's writes. `decode_error` says why the InferenceDeployment could not be read,
    `missing_fields` which fields the API server drops of any, because the CustomResourceDefinition is older than this operator,
    `unknown_kinds` the kinds that the spec asks for and that cannot be made here.
    """

    generation: int
    deployment: KubeObject | None = None
    rendering: Rendering = Rendering.OUTDATED
    replica_sets: tuple[KubeObject, ...] = ()
    pods: tuple[KubeObject, ...] = ()
    reports: Mapping[str, PodReport] = field(default_factory=dict)
    warnings: Mapping[str, PodWarning] = field(default_factory=dict)
    problems: tuple[ApplyProblem, ...] = ()
    decode_error: str | None = None
    missing_fields: tuple[str, ...] = ()
    unknown_kinds: tuple[str, ...] = ()
