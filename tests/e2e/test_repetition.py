"""Fifty InferenceDeployments, a rollout among them: a restart of the operator and ten reconnects of its watches do nothing over again."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.cluster import Cluster, Manifest, Writes
from deployed import KIND, LABEL
from many import CHILDREN, create, is_done
from operated import Operated, scripted
from operator_process import OperatorProcess
from silent_proxy import SilentProxy, silent_proxy

NUMBER = 50
NUM_RECONNECTS = 10
NUM_WATCHES = 8
"""A watch for each kind: InferenceDeployments, their five children, ReplicaSets and pods."""

MAX_WRITES = 60
SECONDS = 60.0


@pytest.fixture
def proxy(place: Operated) -> Iterator[SilentProxy]:
    """Between the operator and the API server."""
    with silent_proxy(*place.account.server()) as proxy:
        place.account.go_through(proxy.port)
        yield proxy


def _writes(place: Operated, since: datetime) -> Writes:
    return [write for write in place.cluster.audit_writes(since, place.account.user) if write.resource != "leases"]


def _versions(place: Operated) -> dict[str, str]:
    """Without those of the rollout, which change by themselves."""
    found = [(kind, obj) for kind in (KIND, *CHILDREN) for obj in place.cluster.list(kind, place.namespace)]
    return {f"{kind}/{_name(obj)}": obj["metadata"]["resourceVersion"] for kind, obj in found if re.fullmatch(r"m\d+", _name(obj))}


def _name(obj: Manifest) -> str:
    return str(obj["metadata"]["name"])


def _reconnect(place: Operated, proxy: SilentProxy, operator: OperatorProcess) -> None:
    """Returns when every watch has begun anew and all that it listed was looked at."""
    num_accepted, looked = proxy.num_accepted, operator.num_reconciled
    proxy.cut()
    place.cluster.wait_until(lambda: proxy.num_accepted >= num_accepted + NUM_WATCHES, SECONDS, "the watches are connected again")
    place.cluster.wait_until(
        lambda: operator.num_reconciled > looked and operator.metric("stoker_operator_queue_depth") == 0, SECONDS, "the operator has looked again"
    )


@pytest.mark.case("C091")
def test_a_restart_half_way_through_a_rollout_and_ten_reconnects_write_what_changed_and_nothing_else(
    cluster: Cluster, place: Operated, proxy: SilentProxy, report: Callable[[str], None]
) -> None:
    def wait(condition: Callable[[], Any], what: str) -> None:
        cluster.wait_until(condition, SECONDS, what)

    with place.operator("first", "--resync=1s") as first:
        create(place, NUMBER - 1)
        wait(lambda: is_done(cluster, place.namespace, NUMBER - 1), "all are as they should be")
        model = place.apply("rolling", replicas=2, podTemplate=scripted({}))
        model.wait_settled()
        old, before = set(model.pod_names), _versions(place)
        model.patch(restartedAt="now")
        wait(lambda: set(model.pod_names) - old, "the first new pod is there")
        first.kill()
    half_way, generation, since = set(model.pod_names), model.deployment["metadata"]["generation"], datetime.now(UTC)
    cluster.patch(KIND, "m7", place.namespace, {"spec": {"rollout": {"minReadySeconds": 7}}})
    with place.operator("second", "--resync=1s") as second:
        wait(lambda: cluster.get("Deployment", "m7", place.namespace)["spec"]["minReadySeconds"] == 7, "the change is acted on")
        model.wait_settled()
        wait(lambda: second.num_reconciled >= 3 * NUMBER, "all were looked at three times")
        num_writes, settled = len(_writes(place, since)), datetime.now(UTC)
        for _ in range(NUM_RECONNECTS):
            _reconnect(place, proxy, second)
        assert second.exit_code() is None
    assert _writes(place, settled) == []
    report(f"restart with {NUMBER} InferenceDeployments half way through a rollout: {num_writes} writes; {NUM_RECONNECTS} reconnects: 0 writes")
    assert num_writes <= MAX_WRITES
    children = [write for write in _writes(place, since) if write.resource not in ("events", "inferencedeployments")]
    assert [(write.resource, write.name) for write in children] == [("deployments", "m7")]
    assert {name for name, version in _versions(place).items() if version != before[name]} == {f"{KIND}/m7", "Deployment/m7"}
    assert not set(model.pod_names) & old and half_way - old <= set(model.pod_names)
    assert model.deployment["metadata"]["generation"] == generation
    assert len(cluster.list("ReplicaSet", place.namespace, f"{LABEL}=rolling")) == 2
