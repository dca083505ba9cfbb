"""The chart's gateways before InferenceDeployments: one address for all of them, and nothing lost while replicas and gateways come and go."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from cluster.cluster import Cluster
from deployed import START_SECONDS, Deployed, condition_of, deployed
from installation import GATEWAY, TAG, Installation
from operated import MODEL, scripted
from traffic import Traffic

Report = Callable[[str], None]

WORDS = [338, 338, 338, 338]
"""Tokens with a text: without one there would be no events."""

SPEC: Mapping[str, Any] = {
    "model": {"uri": MODEL},
    "replicas": 2,
    "engine": {"image": f"localhost/stoker-gateway:{TAG}"},
    "lifecycle": {"preStopDelay": "3s", "drainTimeout": "30s"},
    "podTemplate": scripted({"tokens_per_second": 20, "default_reply": WORDS}),
}
STREAMS_AROUND = 10
"""Before a change, and after it."""


@pytest.fixture(scope="module")
def models(cluster: Cluster, stoker: Installation) -> Iterator[tuple[Deployed, Deployed]]:
    with deployed(cluster, stoker.models, "first", SPEC) as first, deployed(cluster, stoker.models, "second", SPEC) as second:
        for model in (first, second):
            cluster.wait_until(lambda model=model: routable(model).get("status") == "True", START_SECONDS, f"{model.name} is Routable")  # type: ignore[misc]
        yield first, second


def routable(model: Deployed) -> Mapping[str, Any]:
    return condition_of(model.get(), "Routable")


def ask(client: httpx.Client, model: str) -> httpx.Response:
    return client.post("/v1/completions", json={"model": model, "prompt": "Hello", "max_tokens": 4})


@pytest.fixture
def client(stoker: Installation) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stoker.gateway_url, trust_env=False, timeout=30) as client:
        yield client


def test_two_models_of_two_replicas_answer_behind_one_address(models: tuple[Deployed, Deployed], client: httpx.Client) -> None:
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["first", "second"]
    for model in models:
        for name in (model.name, f"{model.namespace}/{model.name}"):
            answer = ask(client, name)
            assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 4
        assert routable(model)["reason"] == "Served"
    assert ask(client, "third").status_code == 404


def test_a_name_that_is_taken_is_told_and_another_way_leads_to_the_model(
    cluster: Cluster, stoker: Installation, models: tuple[Deployed, Deployed], client: httpx.Client
) -> None:
    spec = {**SPEC, "model": {"uri": MODEL, "servedName": "first"}, "replicas": 1}
    with deployed(cluster, stoker.models, "usurper", spec) as usurper:
        cluster.wait_until(lambda: routable(usurper).get("reason") == "NameTaken", START_SECONDS, "the condition says so")
        assert f"{stoker.models}/first" in routable(usurper)["message"]
        assert ask(client, f"{stoker.models}/usurper").status_code == 200 == ask(client, "first").status_code
        assert routable(models[0])["reason"] == "Served"
    cluster.wait_until(lambda: ask(client, f"{stoker.models}/usurper").status_code == 404, START_SECONDS, "the name is gone")


def test_a_model_without_replicas_is_known(cluster: Cluster, stoker: Installation, client: httpx.Client) -> None:
    spec = {**SPEC, "replicas": 0, "traffic": {"queue": {"maxRequests": 0}}}
    with deployed(cluster, stoker.models, "idle", spec) as idle:
        cluster.wait_until(lambda: routable(idle).get("reason") == "NoReadyReplicas", START_SECONDS, "the gateways know it")
        answer = ask(client, "idle")
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0


def test_rollouts_scaling_and_new_gateways_are_not_noticed(cluster: Cluster, stoker: Installation, models: tuple[Deployed, Deployed], report: Report) -> None:
    first, second = models
    for what, change in (
        ("model restart", lambda: first.patch(restartedAt=str(time.time()))),
        ("scaling out", lambda: first.scale(3)),
        ("scaling in", lambda: first.scale(2)),
        ("another model's restart", lambda: second.patch(restartedAt=str(time.time()))),
        ("gateway rollout", stoker.restart_gateways),
        ("gateway eviction", lambda: evict_gateway(cluster, stoker)),
    ):
        with Traffic(stoker.gateway_url, first.name, max_tokens=4) as traffic:
            wait_for_streams(cluster, traffic)
            change()
            for model in models:
                model.wait_settled()
            cluster.wait_until(lambda: len(gateway_names(cluster, stoker)) == 2, START_SECONDS, "old gateways went")
            stoker.wait_ready()
            wait_for_streams(cluster, traffic)
        report(traffic.summary(f"through the gateway, {what}"))
        assert traffic.failures == ()


@pytest.mark.case("C096")
def test_three_restarts_of_a_busy_model_in_a_row_are_not_noticed(cluster: Cluster, stoker: Installation, report: Report) -> None:
    spec = {**SPEC, "replicas": 3, "podTemplate": scripted({"tokens_per_second": 5, "default_reply": 4 * WORDS})}
    # Each request takes 3 s.
    with deployed(cluster, stoker.models, "busy", spec) as busy, Traffic(stoker.gateway_url, "busy", per_second=20, max_tokens=15) as traffic:
        for number in range(3):
            wait_for_streams(cluster, traffic)
            busy.patch(restartedAt=str(number))
            busy.wait_settled()
        wait_for_streams(cluster, traffic)
    report(traffic.summary("through the gateway, three restarts of three replicas, requests of 3 s"))
    assert traffic.failures == ()


def gateway_names(cluster: Cluster, stoker: Installation) -> list[str]:
    """Of all its pods, those that are to go included."""
    return [str(pod["metadata"]["name"]) for pod in cluster.list("Pod", stoker.namespace, f"app.kubernetes.io/name={GATEWAY}")]


def evict_gateway(cluster: Cluster, stoker: Installation) -> None:
    evicted = gateway_names(cluster, stoker)[0]
    cluster.evict(evicted, stoker.namespace)
    cluster.wait_until(lambda: evicted not in gateway_names(cluster, stoker), START_SECONDS, "it is gone")


def wait_for_streams(cluster: Cluster, traffic: Traffic) -> None:
    enough = len(traffic.outcomes) + STREAMS_AROUND
    cluster.wait_until(lambda: len(traffic.outcomes) >= enough, START_SECONDS, "streams end")


def test_an_evicted_replica_is_not_missed(cluster: Cluster, stoker: Installation, models: tuple[Deployed, Deployed], report: Report) -> None:
    first, _ = models
    with Traffic(stoker.gateway_url, first.name, max_tokens=4) as traffic:
        wait_for_streams(cluster, traffic)
        gone = first.ready_pod_names[0]
        cluster.evict(gone, first.namespace)
        cluster.wait_until(lambda: first.find_pod(gone) is None, START_SECONDS, "the pod is gone")
        first.wait_settled()
        wait_for_streams(cluster, traffic)
    report(traffic.summary("through the gateway, an eviction"))
    assert traffic.failures == ()


def test_nothing_is_written_while_nothing_changes(cluster: Cluster, models: tuple[Deployed, Deployed]) -> None:
    first, second = models
    before = [model.get()["metadata"]["resourceVersion"] for model in (first, second)]
    deadline = time.monotonic() + 20
    cluster.wait_until(lambda: time.monotonic() > deadline, 30, "a resync has gone by")
    assert [model.get()["metadata"]["resourceVersion"] for model in (first, second)] == before
