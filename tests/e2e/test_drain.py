"""Drains on a real kubelet: how long they take, what clients of the gateway see, and which replica goes.

Engines follow a script, for streams as long as a test wants.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.cluster import Cluster, Manifest
from deployed import START_SECONDS, Deployed, deployed
from history import history
from installation import TAG, Installation
from long_stream import LongStream
from operated import MODEL, scripted

Report = Callable[[str], None]
Act = Callable[[Cluster, Deployed], None]

COST = "controller.kubernetes.io/pod-deletion-cost"
WORD = [338]
"""A token with a text: without one there would be no events."""
TOKENS_PER_SECOND = 10
PRE_STOP_SECONDS = 2
SHORT_DRAIN_SECONDS = 5
EXIT_SECONDS = 2
"""How much later than its deadline an api may end."""
GONE_SECONDS = 10
"""How long a pod's object may outlive its api."""


def _spec(replicas: int, drain_seconds: int) -> Mapping[str, Any]:
    return {
        "model": {"uri": MODEL},
        "replicas": replicas,
        "engine": {"image": f"localhost/stoker-gateway:{TAG}"},
        "lifecycle": {"preStopDelay": f"{PRE_STOP_SECONDS}s", "drainTimeout": f"{drain_seconds}s"},
        "podTemplate": scripted({"tokens_per_second": TOKENS_PER_SECOND, "default_reply": WORD}),
    }


@contextmanager
def streaming(cluster: Cluster, model: Deployed, urls: Sequence[str], seconds: float) -> Iterator[list[LongStream]]:
    """A stream by each of these addresses, all under way when the block begins."""
    num_tokens = int(seconds * TOKENS_PER_SECOND)
    with ExitStack() as stack:
        streams = [stack.enter_context(LongStream(url, model.name, num_tokens)) for url in urls]
        cluster.wait_until(lambda: all(stream.has_begun for stream in streams), START_SECONDS, "the streams have begun")
        yield streams


def _address(model: Deployed, pod: str) -> str:
    return f"http://{_pod(model, pod)['status']['podIP']}:8000"


def _pod(model: Deployed, name: str) -> Manifest:
    return next(pod for pod in model.pods if pod["metadata"]["name"] == name)


def _finished_at(pod: Manifest, container: str) -> float:
    """Rounded down to a second, as the kubelet tells it; 0 while it runs."""
    statuses = pod["status"].get("containerStatuses", [])
    ended = next(status["state"].get("terminated") for status in statuses if status["name"] == container)
    return datetime.fromisoformat(ended["finishedAt"]).timestamp() if ended else 0.0


def test_a_stream_longer_than_the_drain_is_cut_in_time_with_an_error_event(cluster: Cluster, stoker: Installation, report: Report):
    with deployed(cluster, stoker.models, "short-drain", _spec(1, SHORT_DRAIN_SECONDS)) as model:
        pod = model.pod_names[0]
        with streaming(cluster, model, [stoker.gateway_url], seconds=60) as (stream,), history(cluster, "Pod", pod, model.namespace) as seen:
            deleted = time.time()
            cluster.delete("Pod", pod, model.namespace)
            cluster.wait_until(lambda: model.find_pod(pod) is None, START_SECONDS, "the pod is gone")
            gone = time.time()
        finished = max(_finished_at(version, "api") for version in seen.versions)
        deadline = deleted + PRE_STOP_SECONDS + SHORT_DRAIN_SECONDS
        ends = {"error event": stream.ended, "api's end": finished, "pod gone": gone}
        report(f"short drain, after its deadline: {', '.join(f'{what} {moment - deadline:+.1f} s' for what, moment in ends.items())}")
        assert stream.error["message"] and stream.events[-1] == "[DONE]"
        assert deadline - 1 <= finished <= deadline + EXIT_SECONDS
        assert gone <= finished + GONE_SECONDS
        drain = cluster.wait_until(lambda: model.status.get("lastDrain"), START_SECONDS, "the status tells of the drain")
        assert (drain["pod"], drain["inFlightAtStart"], drain["completed"], drain["aborted"]) == (pod, 1, 0, 1)
        assert SHORT_DRAIN_SECONDS <= drain["durationSeconds"] <= SHORT_DRAIN_SECONDS + EXIT_SECONDS


def test_the_least_busy_replica_goes_and_its_streams_finish(cluster: Cluster, stoker: Installation):
    with deployed(cluster, stoker.models, "scaled-in", _spec(2, 30)) as model:
        quiet, busy = model.pod_names
        since = datetime.now(UTC)
        # Straight to the pods, for the gateway would share them evenly.
        urls = [_address(model, pod) for pod in (busy, busy, busy, quiet)]
        with streaming(cluster, model, urls, seconds=15) as streams:
            model.scale(1)
            cluster.wait_until(lambda: len(model.pods) == 1, START_SECONDS, "a replica goes")
            assert model.pod_names == [busy]
            costs = {pod["metadata"]["name"]: pod["metadata"]["annotations"][COST] for pod in model.all_pods}
        assert costs == {busy: "3", quiet: "1"}
        assert all(stream.is_whole for stream in streams)
        writes = [write for write in cluster.audit_writes(since, stoker.user) if (write.resource, write.subresource) in (("pods", ""), ("deployments", ""))]
        assert [write.resource for write in writes] == ["pods", "pods", "deployments"]
        drain = cluster.wait_until(lambda: model.status.get("lastDrain"), START_SECONDS, "the status tells of the drain")
        assert (drain["pod"], drain["inFlightAtStart"], drain["completed"], drain["aborted"]) == (quiet, 1, 1, 0)


def _delete(cluster: Cluster, model: Deployed) -> None:
    cluster.delete("Pod", model.pod_names[0], model.namespace)


def _evict(cluster: Cluster, model: Deployed) -> None:
    cluster.evict(model.pod_names[0], model.namespace)


def _roll(cluster: Cluster, model: Deployed) -> None:
    model.patch(restartedAt="again")


def _scale_to_zero(cluster: Cluster, model: Deployed) -> None:
    model.scale(0)


@pytest.mark.parametrize("act", [_delete, _evict, _roll, _scale_to_zero])
def test_a_stream_that_fits_into_the_drain_finishes_whole(cluster: Cluster, stoker: Installation, act: Act):
    with deployed(cluster, stoker.models, "long-drain", _spec(1, 30)) as model:
        pod = model.pod_names[0]
        with streaming(cluster, model, [stoker.gateway_url], seconds=10) as (stream,):
            act(cluster, model)
            cluster.wait_until(lambda: pod not in model.pod_names, START_SECONDS, "the pod is told to stop")
            assert not stream.ended
        assert stream.is_whole
        drain = cluster.wait_until(lambda: model.status.get("lastDrain"), START_SECONDS, "the status tells of the drain")
        assert (drain["pod"], drain["inFlightAtStart"], drain["completed"], drain["aborted"]) == (pod, 1, 1, 0)
