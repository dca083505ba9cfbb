"""Conditions on a real kubelet, scheduler and API server: what fails, in whose words, how soon, and that it is over once its cause is."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.dynamic.exceptions import DynamicApiError

from cluster.cluster import Cluster, Manifest, Writes
from cluster.waiting import wait_until
from deployed import KIND, Deployed, condition_of, remove
from history import history
from operated import Operated, answers, operated, scripted
from stoker_engine.exit_codes import ExitCode
from stoker_operator.rollout import STUCK_SECONDS

WITHIN = 15.0
"""Seconds from a cause to its condition, and from its removal to the condition's end."""

KUBELET_SECONDS = 5.0
"""The kubelet itself looks for a missing Secret again each 10 to 15 s."""

START = 90.0
"""For a pod to become ready on a busy machine; for one to end after it was found hung."""

SERVING: Manifest = {"replicas": 1, "podTemplate": scripted({})}


Report = Callable[[str], None]


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
    """For conditions; reports how long each took from its cause, in seconds of the wall clock, as the kubelet's own times are."""

    def __init__(self, report: Report, model: Deployed, what: str) -> None:
        self._report = report
        self._model = model
        self._what = what

    def report(self, words: str) -> None:
        self._report(f"{self._what}: {words}")

    def told(self, condition: str, status: str, reason: str, since: Callable[[], datetime | None]) -> dict[str, Any]:
        def is_told() -> dict[str, Any]:
            told = _condition(self._model, condition)
            return told if (told.get("status"), told.get("reason")) == (status, reason) else {}

        try:
            told = wait_until(is_told, START, f"{condition} is {status} ({reason})")
        except TimeoutError as error:
            raise AssertionError(f"{self._what}: {error}: {_condition(self._model, condition)}") from error
        cause = since()
        assert cause is not None
        seconds = (datetime.now(UTC) - cause).total_seconds()
        self.report(f"{condition} {status} ({reason}) after {seconds:.1f} s: {told['message'][:160]}")
        assert seconds <= WITHIN
        return told


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
def test_a_new_revision_that_fails_is_told_of_while_the_old_one_serves(
    cluster: Cluster, place: Operated, serving: Deployed, report: Report, fault: Fault
) -> None:
    waiting, old = Waiting(report, serving, fault.name), serving.pod_names
    changed = datetime.now(UTC)
    place.apply("alpha", **{**SERVING, **fault.spec})
    told = waiting.told("Ready", "False", fault.reason, (lambda: _first_end(serving)) if fault.ends else lambda: changed)
    assert fault.words in told["message"]
    assert _condition(serving, "Available")["status"] == "True" and answers(serving)
    assert set(old) <= set(serving.pod_names)
    if fault.ends:
        failure = serving.status["lastFailure"]
        assert (failure["container"], failure["exitCode"]) == ("engine", fault.exit_code)
        assert failure["pod"] not in old
        # Of codes 3 and 4 the engine itself says why.
        assert fault.exit_code not in (ExitCode.STARTUP_TIMEOUT, ExitCode.MODEL_LOAD_FAILED) or fault.words in failure["message"]
    mended = datetime.now(UTC)
    place.apply("alpha", **SERVING)
    waiting.told("Ready", "True", "AllReplicasReady", lambda: mended)
    assert serving.pod_names == old


def _missing_secret(place: Operated) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "extra", "namespace": place.namespace}, "stringData": {"word": "x"}}


def _missing_volume(place: Operated) -> tuple[Manifest, Manifest]:
    """A claim and the volume that it is bound to."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    volume = {"capacity": {"storage": "1Mi"}, "hostPath": {"path": "/tmp"}, "claimRef": {"name": "shelf", "namespace": place.namespace}}
    claim = {"resources": {"requests": {"storage": "1Mi"}}, "volumeName": f"shelf-{place.namespace}"}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"shelf-{place.namespace}"}, "spec": {**common, **volume}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shelf", "namespace": place.namespace}, "spec": {**common, **claim}},
    )


def _mended(serving: Deployed, waiting: Waiting, mend: Callable[[], object], reason: str, within: float = WITHIN) -> None:
    """The condition's reason is gone in time; the new pod has its start to go."""
    mended = datetime.now(UTC)
    mend()
    wait_until(lambda: condition_of(serving.get(), "Ready")["reason"] != reason, START, f"{reason} is over")
    seconds = (datetime.now(UTC) - mended).total_seconds()
    waiting.report(f"{reason} over after {seconds:.1f} s")
    assert seconds <= within
    serving.wait_ready(START)


def test_a_missing_secret_is_told_of_until_it_is_there(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    waiting, changed = Waiting(report, serving, "no Secret"), datetime.now(UTC)
    reference = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "extra", "key": "word"}}}
    place.apply("alpha", **SERVING, engine={"env": [reference]})
    told = waiting.told("Ready", "False", "MissingReference", lambda: changed)
    assert 'secret "extra" not found' in told["message"] and answers(serving)
    _mended(serving, waiting, lambda: cluster.apply(_missing_secret(place)), "MissingReference", WITHIN + KUBELET_SECONDS)


def test_a_missing_claim_is_told_of_until_it_is_there(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    waiting, changed = Waiting(report, serving, "no claim"), datetime.now(UTC)
    volume = {"name": "shelf", "persistentVolumeClaim": {"claimName": "shelf"}}
    place.apply("alpha", replicas=1, podTemplate=scripted({}, volumes=[volume]))
    told = waiting.told("Ready", "False", "MissingReference", lambda: changed)
    assert 'persistentvolumeclaim "shelf" not found' in told["message"] and answers(serving)
    try:
        _mended(serving, waiting, lambda: cluster.apply(*_missing_volume(place)), "MissingReference")
    finally:
        cluster.delete("PersistentVolume", f"shelf-{place.namespace}")


def test_a_pod_that_fits_no_node_costs_no_serving_one_however_long_it_waits(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    waiting, changed, old = Waiting(report, serving, "no node"), datetime.now(UTC), serving.pod_names
    node, label = str(cluster.nodes()[0]["metadata"]["name"]), f"e2e.stoker.dev/{place.namespace}"
    place.apply("alpha", replicas=1, podTemplate=scripted({}, nodeSelector={label: "yes"}))
    waiting.told("Ready", "False", "Unschedulable", lambda: changed)
    cluster.wait_until(lambda: (datetime.now(UTC) - changed).total_seconds() > STUCK_SECONDS + 5, START, "the operator has looked again")
    assert set(old) <= set(serving.pod_names) and answers(serving)
    try:
        _mended(serving, waiting, lambda: cluster.patch("Node", node, None, {"metadata": {"labels": {label: "yes"}}}), "Unschedulable")
    finally:
        cluster.patch("Node", node, None, {"metadata": {"labels": {label: None}}})


@pytest.fixture
def quota(cluster: Cluster, place: Operated, serving: Deployed) -> Iterator[Callable[[int], None]]:
    """Sets how many pods the namespace may have."""

    def set_pods(number: int) -> None:
        cluster.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": place.namespace}, "spec": {"hard": {"pods": str(number)}}}
        )

    set_pods(1)
    yield set_pods
    cluster.delete("ResourceQuota", "small", place.namespace)


@pytest.mark.case("C082")
def test_a_quota_is_told_of_and_over_soon_after_it_is_raised(
    cluster: Cluster, place: Operated, serving: Deployed, report: Report, quota: Callable[[int], None]
) -> None:
    waiting, changed = Waiting(report, serving, "quota"), datetime.now(UTC)
    place.apply("alpha", **{**SERVING, "replicas": 2})
    told = waiting.told("SpecAccepted", "False", "QuotaExceeded", lambda: changed)
    assert "exceeded quota: small" in told["message"]
    degraded = _condition(serving, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "QuotaExceeded")
    blocked, changed = place.apply("blocked", replicas=2, podTemplate=scripted({})), datetime.now(UTC)
    Waiting(report, blocked, "quota without room").told("Available", "False", "QuotaExceeded", lambda: changed)
    refused = datetime.now(UTC)
    with history(cluster, KIND, "blocked", place.namespace) as seen:
        # By then the ReplicaSet's controller would let most of a minute pass before it tries by itself.
        cluster.wait_until(lambda: _num_retries(place, refused, "blocked") >= 3, START, "the pods were tried again three times")
    assert {condition_of(version, "SpecAccepted")["status"] for version in seen.versions} == {"False"}
    for name in ("alpha", "blocked"):
        num_writes = len(_writes_for(place, refused, name))
        waiting.report(f"{num_writes} writes for {name} in {(datetime.now(UTC) - refused).total_seconds():.0f} s")
        assert num_writes < 10
    warnings = [event for event in cluster.list("Event", place.namespace) if event["reason"] == "QuotaExceeded"]
    assert sorted(event["involvedObject"]["name"] for event in warnings) == ["alpha", "blocked"]
    remove(cluster, blocked)
    raised = datetime.now(UTC)
    quota(9)
    waiting.told("SpecAccepted", "True", "Accepted", lambda: raised)
    serving.wait_ready(START)


def _writes_for(place: Operated, since: datetime, name: str) -> Writes:
    """Of the operator, of whatever belongs to one InferenceDeployment."""
    return [write for write in place.cluster.audit_writes(since, place.account.user) if re.split(r"[-.]", write.name)[0] == name]


def _num_retries(place: Operated, since: datetime, name: str) -> int:
    return sum(write.resource == "replicasets" for write in _writes_for(place, since, name))


def test_a_pod_template_that_the_api_server_refuses_is_told_word_for_word(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    waiting, changed, old = Waiting(report, serving, "invalid podTemplate"), datetime.now(UTC), serving.pod_names
    before = serving.deployment["metadata"]["generation"]
    place.apply("alpha", replicas=1, podTemplate=scripted({}, dnsPolicy="Nonsense"))
    told = waiting.told("SpecAccepted", "False", "InvalidSpec", lambda: changed)
    assert told["message"] == _refusal(cluster, serving, {"spec": {"template": {"spec": {"dnsPolicy": "Nonsense"}}}})
    assert (_condition(serving, "Ready")["status"], _condition(serving, "Available")["status"]) == ("False", "True")
    assert (serving.pod_names, serving.deployment["metadata"]["generation"]) == (old, before) and answers(serving)
    mended = datetime.now(UTC)
    place.apply("alpha", **SERVING)
    waiting.told("Ready", "True", "AllReplicasReady", lambda: mended)
    assert serving.pod_names == old


@pytest.mark.parametrize(
    ("pod", "words"),
    [({"nodeSelecto": {"a": "b"}}, ".nodeSelecto: field not declared in schema"), ({"nodeSelector": "b"}, ".nodeSelector: expected map, got ")],
    ids=["unknown", "ill-typed"],
)
def test_a_field_of_a_pod_template_that_no_pod_has_is_told(place: Operated, serving: Deployed, report: Report, pod: Manifest, words: str) -> None:
    waiting, changed, old = Waiting(report, serving, "impossible podTemplate"), datetime.now(UTC), serving.pod_names
    place.apply("alpha", replicas=1, podTemplate=scripted({}, **pod))
    assert words in waiting.told("SpecAccepted", "False", "InvalidSpec", lambda: changed)["message"]
    assert serving.pod_names == old and answers(serving)
    mended = datetime.now(UTC)
    place.apply("alpha", **SERVING)
    waiting.told("Ready", "True", "AllReplicasReady", lambda: mended)


def _refusal(cluster: Cluster, model: Deployed, patch: Manifest) -> str:
    """What the API server says to everybody who tries."""
    with pytest.raises(DynamicApiError) as refused:
        cluster.patch("Deployment", model.name, model.namespace, patch)
    message: str = json.loads(str(refused.value.body))["message"]
    return message


def test_a_killed_engine_of_a_serving_pod_is_told_of_until_it_serves_again(cluster: Cluster, place: Operated, serving: Deployed, report: Report) -> None:
    # One that starts in less than a second may be back before the kubelet has said that it was gone.
    quicker = set(serving.pod_names)
    place.apply("alpha", **{**SERVING, "podTemplate": scripted({"load_seconds": 5})})
    cluster.wait_until(lambda: len(serving.pod_names) == 1 and not quicker & set(serving.pod_names), START, "the pod with the quicker engine has gone")
    serving.wait_ready(START)
    waiting, pod = Waiting(report, serving, "killed engine"), serving.pod_names[0]
    killed = datetime.now(UTC)
    os.kill(cluster.container_pid(pod, serving.namespace, "engine"), signal.SIGKILL)
    waiting.told("Ready", "False", "EngineCrashed", lambda: killed)
    serving.wait_ready(START)
    assert serving.pod_names == [pod] and answers(serving)
    failure = serving.status["lastFailure"]
    assert (failure["pod"], failure["container"], failure["exitCode"]) == (pod, "engine", 137)


def test_a_hung_engine_is_never_called_crashed(cluster: Cluster, serving: Deployed, report: Report) -> None:
    waiting, pod = Waiting(report, serving, "stopped engine"), serving.pod_names[0]
    with history(cluster, KIND, serving.name, serving.namespace) as seen:
        stopped = datetime.now(UTC)
        os.kill(cluster.container_pid(pod, serving.namespace, "engine"), signal.SIGSTOP)
        waiting.told("Ready", "False", "EngineHung", lambda: stopped)
        cluster.wait_until(lambda: serving.status.get("lastFailure", {}).get("time", "") > stopped.isoformat(), START, "the kubelet has killed it")
        serving.wait_ready(START)
    reasons = list(dict.fromkeys(condition_of(version, "Ready")["reason"] for version in seen.versions))
    waiting.report(f"{reasons}")
    assert "EngineCrashed" not in reasons
    failure = serving.status["lastFailure"]
    assert (failure["pod"], failure["container"], failure["reason"], failure["exitCode"]) == (pod, "engine", "EngineHung", 137)


@pytest.mark.case("C081")
def test_ready_is_never_true_for_an_old_generation(cluster: Cluster, serving: Deployed) -> None:
    with history(cluster, KIND, serving.name, serving.namespace) as seen:
        first = seen.versions[0]["metadata"]["generation"]
        for number in range(3):
            serving.patch(podTemplate={"metadata": {"annotations": {"number": str(number)}}})
        serving.wait_ready(START)
        cluster.patch(KIND, serving.name, serving.namespace, {"metadata": {"labels": {"touched": "yes"}}})
        cluster.wait_until(lambda: "touched" in seen.last["metadata"].get("labels", {}), START, "the label is seen")
    last = seen.versions[-1]
    assert (last["metadata"]["generation"], last["status"]["observedGeneration"]) == (first + 3, first + 3)
    for version in seen.versions:
        status = version["status"]
        assert status["observedGeneration"] <= version["metadata"]["generation"]
        assert {each["observedGeneration"] for each in status["conditions"]} == {status["observedGeneration"]}
    ready_for = {version["status"]["observedGeneration"] for version in seen.versions if condition_of(version, "Ready")["status"] == "True"}
    assert ready_for == {first, first + 3}
    generations = [version["status"]["observedGeneration"] for version in seen.versions]
    assert generations == sorted(generations)
