"""What a cluster holds of one InferenceDeployment, as its API server would write it."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stoker_operator.observed import Observed, Rendering
from stoker_operator.status.build import build_status
from stoker_operator.status_types import Condition, InferenceDeploymentStatus
from stoker_operator.v1alpha1 import InferenceDeployment

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NEW, OLD = "6f7c9d", "5b8d4c"
NAME = "smollm2"


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str = "", message: str = "", since: float = 0) -> dict[str, Any]:
    return (
        {"type": kind, "status": status, "lastTransitionTime": at(since)} | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})
    )


def terminated(exit_code: int, reason: str = "Error", message: str = "", end: float = 20) -> dict[str, Any]:
    state = {"exitCode": exit_code, "reason": reason, "startedAt": at(end - 5), "finishedAt": at(end), "containerID": "containerd://1"}
    return {"terminated": state | ({"message": message} if message else {})}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def words(reason: str, **fields: Any) -> str:
    """What a program of ours leaves behind."""
    return json.dumps({"reason": reason, "phase": "ready", **fields}) + "\n"


def container(name: str, state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, *, ready: str = "yes", since: float = 2) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"localhost/stoker-{name}:0.1.0",
        "imageID": "",
        "ready": ready == "yes",
        "started": ready == "yes",
        "restartCount": 1 if last else 0,
        "state": state or {"running": {"startedAt": at(since)}},
        "lastState": last or {},
    }


def pod(
    name: str = "smollm2-6f7c9d-aaaaa", *, template: str = NEW, engine: Any = None, api: Any = None, ready: float | None = None, **more: Any
) -> dict[str, Any]:
    """`ready`: when it became so. `more`: `since` (of not being ready), `deleted`, `phase`, `conditions`, `status`."""
    containers = [api or container("api", ready="yes" if ready is not None else "no")]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": at(0),
            "labels": {"stoker.dev/inference-deployment": NAME, "pod-template-hash": template},
            **({"deletionTimestamp": at(more["deleted"])} if "deleted" in more else {}),
        },
        "spec": {"containers": [{"name": "api"}]},
        "status": {
            "phase": more.get("phase", "Running"),
            "podIP": "10.0.0.7",
            "conditions": more.get("conditions")
            or [
                condition("PodScheduled", "True", since=1),
                condition(
                    "Ready", "True" if ready is not None else "False", "" if ready is not None else "ContainersNotReady", since=ready or more.get("since", 0)
                ),
            ],
            "initContainerStatuses": [engine or container("engine")],
            "containerStatuses": containers,
            **more.get("status", {}),
        },
    }


def replica_set(template: str, revision: int) -> dict[str, Any]:
    return {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": f"{NAME}-{template}",
            "labels": {"pod-template-hash": template},
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
    }


def live_deployment(*, total: int, updated: int, available: int, **more: Any) -> dict[str, Any]:
    """`more`: `desired`, `generation`, `observed`, `conditions`, `strategy`, `paused`."""
    counts = {"replicas": total, "updatedReplicas": updated, "readyReplicas": available, "availableReplicas": available}
    progressing = condition("Progressing", "True", "ReplicaSetUpdated", "ReplicaSet is progressing.")
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": NAME, "generation": more.get("generation", 1), "annotations": {"deployment.kubernetes.io/revision": "2"}},
        "spec": {"replicas": more.get("desired", 1), "paused": more.get("paused", False), "strategy": more.get("strategy", {"type": "Recreate"})},
        "status": {
            "observedGeneration": more.get("observed", more.get("generation", 1)),
            "conditions": more.get("conditions", [progressing]),
            **{name: count for name, count in counts.items() if count},  # as the API server writes it
        },
    }


def wanted(**spec: Any) -> InferenceDeployment:
    document = {
        "apiVersion": "stoker.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": NAME, "namespace": "team"},
        "spec": {"model": {"uri": "file:///models/smollm2"}, **spec},
    }
    return msgspec.convert(document, InferenceDeployment)


@dataclass
class Scene:
    """One InferenceDeployment, what is observed of it, and the status that came of it last."""

    wanted: InferenceDeployment = field(default_factory=wanted)
    observed: Observed = field(default_factory=lambda: Observed(generation=3))
    status: InferenceDeploymentStatus = field(default_factory=InferenceDeploymentStatus)
    seconds: float = 30

    def show(self, *pods: dict[str, Any], deployment: dict[str, Any] | None = None, **more: Any) -> "Scene":
        """What is observed now: pods, their Deployment (by default one that counts them), and whatever else."""
        desired = self.wanted.spec.replicas
        active = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        num_ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"]["conditions"]) for each in active)
        updated = sum(each["metadata"]["labels"]["pod-template-hash"] == NEW for each in active)
        counted = deployment or live_deployment(total=len(active), updated=updated, available=num_ready, desired=desired)
        fields = {"generation": 3, "rendering": Rendering.CURRENT, **more}
        self.observed = Observed(deployment=counted, replica_sets=(replica_set(OLD, 1), replica_set(NEW, 2)), pods=pods, **fields)
        return self.build()

    def build(self) -> "Scene":
        self.status = build_status(self.wanted, self.observed, self.status, START + timedelta(seconds=self.seconds))
        return self

    def observe(self, **fields: Any) -> "Scene":
        self.observed = replace(self.observed, **fields)
        return self.build()

    def condition(self, kind: str) -> Condition:
        return next(each for each in self.status.conditions if each.type == kind)

    def brief(self, kind: str = "Ready") -> tuple[str, str]:
        found = self.condition(kind)
        return found.status, found.reason


class World:
    """The builders, for tests and their tables."""

    pod = staticmethod(pod)
    container = staticmethod(container)
    condition = staticmethod(condition)
    terminated = staticmethod(terminated)
    waiting = staticmethod(waiting)
    words = staticmethod(words)
    deployment = staticmethod(live_deployment)
    at = staticmethod(at)
    OLD = OLD

    @staticmethod
    def scene(**spec: Any) -> Scene:
        return Scene(wanted=wanted(**spec))

    @staticmethod
    def crashed(exit_code: int, message: str = "", *, name: str = "engine", reason: str = "Error") -> dict[str, Any]:
        """A pod with a container that has ended once and waits to be started again."""
        ended = container(name, waiting("CrashLoopBackOff", "back-off 10s restarting failed container"), terminated(exit_code, reason, message), ready="no")
        return pod(engine=ended) if name == "engine" else pod(api=ended)


@pytest.fixture
def world() -> World:
    return World()
