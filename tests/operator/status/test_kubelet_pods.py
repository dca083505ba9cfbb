"""Pods as a scheduler and a kubelet 1.34 left them: kubelet_pods.json was read from a cluster, by what was done to each pod."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stoker_operator.observed import PodWarning

PODS = json.loads((Path(__file__).parent / "kubelet_pods.json").read_text(encoding="utf-8"))
NOW = datetime(2026, 12, 31, tzinfo=UTC)
MOUNT = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "hub-token" not found', NOW)
LIVENESS = PodWarning("Unhealthy", "Liveness probe failed: dial tcp 10.244.0.14:8001: connect: connection refused", NOW)

FOUND = [
    ("apicrash", "ApiCrashed", "container api ended with exit code 1 (Failed): OSError: address in use"),
    ("badinit", "EngineCrashed", "container fetch ended with exit code 5 (Error)"),
    ("crash", "EngineCrashed", "container engine ended with exit code 4 (ModelLoadFailed): tensor blk.0 is truncated"),
    ("crashlog", "EngineCrashed", "container engine ended with exit code 1 (Error): the last line of the log, exit 1"),
    ("gated", "Unschedulable", "Scheduling is blocked due to non-empty scheduling gates"),
    ("gpu", "InsufficientAccelerators", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate"),
    ("hang", "EngineHung", "container engine ended with exit code 137 (Error)"),
    ("neverpull", "ImagePullFailed", 'ErrImageNeverPull: Container image "localhost/none:1" is not present with pull policy of Never'),
    ("noclaim", "MissingReference", 'persistentvolumeclaim "models" not found'),
    ("nocommand", "EngineCrashed", "container engine: RunContainerError: failed to create containerd task"),
    ("nokey", "MissingReference", "couldn't find key token in ConfigMap status/kube-root-ca.crt"),
    ("nosecret", "MissingReference", 'secret "hub-token" not found'),
    ("novolume", "MissingReference", 'secret "hub-token" not found'),
    ("oom", "OOMKilled", "container engine ended with exit code 137 (OOMKilled)"),
    ("root", "EngineCrashed", "container's runAsUser breaks non-root policy"),
]


def test_every_pod_that_was_read_is_judged() -> None:
    assert sorted(PODS) == [name for name, _, _ in FOUND]


@pytest.mark.parametrize(("name", "reason", "words"), FOUND, ids=lambda value: value if value in PODS else "")
def test_what_befell_a_real_pod_is_told(world: Any, name: str, reason: str, words: str) -> None:
    pod = PODS[name]
    pod["metadata"]["labels"] = {"pod-template-hash": world.pod()["metadata"]["labels"]["pod-template-hash"]}
    warnings = {pod["metadata"]["name"]: {"novolume": MOUNT, "hang": LIVENESS}[name]} if name in ("novolume", "hang") else {}
    scene = world.scene(accelerator={"count": 1, "resourceClaimTemplateName": None}).show(pod, warnings=warnings)
    assert scene.brief() == ("False", reason)
    assert scene.condition("Ready").message.startswith(f"Pod {pod['metadata']['name']}: ") and words in scene.condition("Ready").message


def test_a_processor_that_is_missing_is_no_missing_claim(world: Any) -> None:
    pod = PODS["gpu"]
    (scheduled,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    busy = world.pod(conditions=[{**scheduled, "message": scheduled["message"].replace("nvidia.com/gpu", "cpu")}])
    claiming = {"count": 0, "resourceClaimTemplateName": "gpus"}
    assert world.scene(accelerator=claiming).show(busy).brief() == ("False", "Unschedulable")
    unclaimed = world.pod(conditions=[{**scheduled, "message": "0/1 nodes are available: 1 cannot allocate all claims."}])
    assert world.scene(accelerator=claiming).show(unclaimed).brief() == ("False", "InsufficientAccelerators")
