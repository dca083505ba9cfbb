"""Conditions on a real kubelet, scheduler and API server: what fails, in whose words, how soon, and that it is over once its cause is."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from kubernetes.dynamic.exceptions import DynamicApiError

from cluster.cluster import Cluster, Manifest
from deployed import Deployed, condition_of, remove
from history import history
from operated import Operated, operated, scripted

WITHIN = 15.0
"""Seconds from a cause to its condition, and from its removal to the condition's end."""

START = 90.0
"""For a pod to become ready on a busy machine; for one to end after it was found hung."""

SERVING: Manifest = {"replicas": 1, "podTemplate": scripted({})}


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    with operated(cluster, "conditions", tmp_path_factory.mktemp("operator")) as place, place.operator("operator"):
        yield place


@pytest.fixture(scope="module")
def alpha(place: Operated) -> Iterator[Deployed]:
    """One replica that answers; each test leaves it so."""
    model = place.apply("alpha", **SERVING)
    model.wait_ready()
    yield model
    remove(place.cluster, model)


@pytest.fixture
def serving(place: Operated, alpha: Deployed) -> Deployed:
    place.apply("alpha", **SERVING)
    alpha.wait_ready(START)
    return alpha


def _condition(model: Deployed, condition: str) -> dict[str, Any]:
    """Empty unless it speaks of the present generation."""
    found = model.get()
    told = dict(condition_of(found, condition))
    return told if told.get("observedGeneration") == found["metadata"]["generation"] else {}


class Waiting:
    """For conditions; prints how long each took from `cause`, in seconds of the wall clock, as the kubelet's own times are."""

    def __init__(self, cluster: Cluster, model: Deployed, what: str) -> None:
        self._cluster = cluster
        self._model = model
        self._what = what

    def told(self, condition: str, status: str, reason: str, since: Callable[[], datetime | None]) -> dict[str, Any]:
        def is_told() -> dict[str, Any]:
            told = _condition(self._model, condition)
            return told if (told.get("status"), told.get("reason")) == (status, reason) else {}

        try:
            told = self._cluster.wait_until(is_told, START, f"{condition} is {status} ({reason})")
        except TimeoutError as error:
            raise AssertionError(f"{self._what}: {error}: {_condition(self._model, condition)}") from error
        cause = since()
        assert cause is not None
        seconds = (datetime.now(UTC) - cause).total_seconds()
        print(f"{self._what}: {condition} {status} ({reason}) after {seconds:.1f} s: {told['message'][:160]}")  # noqa: T201
        assert seconds <= WITHIN
        return told


def _answers(model: Deployed) -> bool:
    asked = {"model": model.name, "prompt": "Hello", "max_tokens": 3}
    with httpx.Client(trust_env=False, timeout=10) as client:
        answer = client.post(f"{model.url}/v1/completions", json=asked)
    return answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3


def _first_end(model: Deployed) -> datetime | None:
    """When a container of its pods ended first."""
    statuses = [status for pod in model.pods for status in pod["status"].get("initContainerStatuses", [])]
    ends = [state["terminated"]["finishedAt"] for status in statuses for state in (status["state"], status.get("lastState") or {}) if "terminated" in state]
    return min((datetime.fromisoformat(end) for end in ends), default=None)


@dataclass(frozen=True, slots=True)
class Fault:
    """`ends`: the container ends, and its end is the cause; else the change of the spec is."""

    name: str
    spec: Manifest
    reason: str
    words: str
    ends: bool = False
    exit_code: int | None = None


def _engine(**fields: object) -> Manifest:
    return {"spec": {"initContainers": [{"name": "engine", **fields}]}}


FAULTS = (
    Fault("load error", {"podTemplate": scripted({"load_error": "weights.bin is cut short"})}, "EngineCrashed", "weights.bin is cut short", True, 4),
    Fault(
        "startup timeout",
        {"podTemplate": scripted({"hang_in_load": True}), "lifecycle": {"startupTimeout": "4s", "preStopDelay": "0s", "drainTimeout": "1s"}},
        "StartupTimeout",
        "loading",
        True,
        3,
    ),
    Fault("silent exit", {"podTemplate": scripted({"exit_code": 7})}, "EngineCrashed", "exit code 7", True, 7),
    Fault(
        "out of memory",
        {"podTemplate": _engine(command=["python3", "-c", "bytearray(1 << 29)"]), "engine": {"resources": {"limits": {"memory": "64Mi"}}}},
        "OOMKilled",
        "container engine ended with exit code 137",
        True,
        137,
    ),
    Fault("no image", {"podTemplate": scripted({}), "engine": {"image": "localhost/none:1"}}, "ImagePullFailed", "localhost/none:1"),
    Fault("no node", {"podTemplate": scripted({}, nodeSelector={"stoker-e2e": "nowhere"})}, "Unschedulable", "didn't match Pod's node affinity/selector"),
    Fault("no accelerator", {"podTemplate": scripted({}), "accelerator": {"count": 64}}, "InsufficientAccelerators", "Insufficient nvidia.com/gpu"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_a_new_revision_that_fails_is_told_of_while_the_old_one_serves(cluster: Cluster, place: Operated, serving: Deployed, fault: Fault) -> None:
    waiting, old = Waiting(cluster, serving, fault.name), serving.pod_names
    changed = datetime.now(UTC)
    place.apply("alpha", **{**SERVING, **fault.spec})
    told = waiting.told("Ready", "False", fault.reason, (lambda: _first_end(serving)) if fault.ends else lambda: changed)
    assert fault.words in told["message"]
    assert _condition(serving, "Available")["status"] == "True" and _answers(serving)
    assert set(old) <= set(serving.pod_names)
    if fault.ends:
        failure = serving.status["lastFailure"]
        assert (failure["container"], failure["exitCode"]) == ("engine", fault.exit_code)
        assert failure["pod"] not in old
    mended = datetime.now(UTC)
    place.apply("alpha", **SERVING)
    waiting.told("Ready", "True", "AllReplicasReady", lambda: mended)
    assert serving.pod_names == old
