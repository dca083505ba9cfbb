from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.context import Defaults, DeploymentStrategy
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.rollout import STUCK_SECONDS, SURGE, TERMINATE_FIRST, ClusterView, decide_strategy
from stoker_operator.v1alpha1 import InferenceDeployment

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULTS = Defaults(engine_image="stoker-engine:1", api_image="stoker-api:1", image_pull_policy="IfNotPresent")
PERCENT = DeploymentStrategy("RollingUpdate", "25%", "25%")
GPU = "nvidia.com/gpu"

Decide = Callable[..., DeploymentStrategy]


def make(**spec: Any) -> InferenceDeployment:
    spec = {"model": {"uri": "package://a/b.gguf"}, "accelerator": {"count": 2}, **spec}
    manifest = {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": "demo", "namespace": "team"}, "spec": spec}
    return msgspec.convert(manifest, InferenceDeployment)


def live(deployment: InferenceDeployment, strategy: DeploymentStrategy = SURGE, *, updated: int = 1, replicas: int = 1, observed: int = 3) -> KubeObject:
    numbers = {"maxSurge": strategy.max_surge, "maxUnavailable": strategy.max_unavailable}
    rolling = {"rollingUpdate": numbers} if strategy.type == "RollingUpdate" else {}
    return {
        "metadata": {"name": "demo", "generation": 3, "annotations": {"stoker.dev/template-inputs": template_inputs(deployment)}},
        "spec": {"replicas": 1, "strategy": {"type": strategy.type, **rolling}},
        "status": {"observedGeneration": observed, "updatedReplicas": updated, "replicas": replicas},
    }


def node(gpus: int) -> KubeObject:
    status = {"allocatable": {GPU: str(gpus), "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": "one"}, "spec": {}, "status": status}


def replica(reason: str | None = None, *, age: float = 60.0, node_name: str = "one") -> KubeObject:
    created = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    metadata = {"name": "demo-1", "namespace": "team", "labels": {"stoker.dev/inference-deployment": "demo"}, "creationTimestamp": created}
    spec: KubeObject = {"containers": [{"name": "engine", "resources": {"limits": {GPU: 2}}}]}
    if reason is None:
        return {"metadata": metadata, "spec": {**spec, "nodeName": node_name}, "status": {"phase": "Running"}}
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}


def view(*pods: KubeObject, gpus: int | None = 2, claims: tuple[KubeObject, ...] = ()) -> ClusterView:
    return ClusterView(pods=pods, nodes=None if gpus is None else (node(gpus),), claims=claims, now=NOW)


def claim(*modes: str) -> KubeObject:
    return {"metadata": {"name": "weights"}, "spec": {"accessModes": list(modes)}}


BEFORE = make()
AFTER = make(engine={"seed": 1})


@pytest.mark.case("C083")
def test_a_rollout_surges_where_an_accelerator_is_free_and_else_terminates_first() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(replica(), gpus=4)) == SURGE
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(replica(), gpus=2)) == TERMINATE_FIRST


def test_a_rollout_surges_where_the_nodes_may_not_be_read() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(replica(), gpus=None)) == SURGE


def test_a_surge_under_way_is_not_undone_by_the_room_that_it_takes() -> None:
    rolling = live(AFTER, SURGE, updated=1, replicas=2)
    assert decide_strategy(AFTER, DEFAULTS, rolling, view(replica(), replica(), gpus=4)) == SURGE


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_a_surge_that_finds_no_node_falls_to_terminate_first_and_stays_there(reason: str) -> None:
    waiting = view(replica(), replica(reason, age=STUCK_SECONDS), gpus=4)
    assert decide_strategy(AFTER, DEFAULTS, live(AFTER, SURGE, replicas=2), waiting) == TERMINATE_FIRST
    assert decide_strategy(AFTER, DEFAULTS, live(AFTER, TERMINATE_FIRST, updated=0), view(gpus=9)) == TERMINATE_FIRST


def test_a_pod_may_wait_a_moment_for_its_node() -> None:
    waiting = view(replica(), replica("SchedulingGated", age=STUCK_SECONDS - 1), gpus=4)
    assert decide_strategy(AFTER, DEFAULTS, live(AFTER, SURGE, replicas=2), waiting) == SURGE


def test_a_replica_without_a_node_leaves_no_room_for_one_more() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(replica("Unschedulable"), gpus=None)) == TERMINATE_FIRST


@pytest.mark.parametrize("there", [live(BEFORE), live(AFTER, SURGE, replicas=2)], ids=["begins", "under way"])
def test_replicas_that_serve_do_not_end_for_one_that_no_node_could_take(there: KubeObject) -> None:
    assert decide_strategy(AFTER, DEFAULTS, there, view(replica(), replica("Unschedulable"), gpus=1)) == SURGE


def test_a_change_that_has_room_surges_although_a_replica_waits() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE, SURGE, replicas=2), view(replica(), replica("Unschedulable"), gpus=4)) == SURGE


def test_pods_of_others_that_wait_are_others_matter() -> None:
    other = replica("Unschedulable")
    other["metadata"]["namespace"] = "elsewhere"
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(other, gpus=4)) == SURGE


@pytest.mark.parametrize("strategy", [SURGE, TERMINATE_FIRST])
@pytest.mark.parametrize("gpus", [0, 2, 8])
def test_an_idle_object_keeps_its_strategy_whatever_comes_and_goes(strategy: DeploymentStrategy, gpus: int) -> None:
    for pods in ((), (replica(),), (replica("Unschedulable"),)):
        assert decide_strategy(BEFORE, DEFAULTS, live(BEFORE, strategy), view(*pods, gpus=gpus)) == strategy


def test_the_answer_is_its_own_fixed_point_while_idle() -> None:
    auto = make(replicas=2)
    first = decide_strategy(auto, DEFAULTS, live(auto, PERCENT, updated=2, replicas=2), view(replica()))
    assert decide_strategy(auto, DEFAULTS, live(auto, first, updated=2, replicas=2), view(replica())) == first == SURGE


def test_a_reverted_rollout_keeps_its_strategy() -> None:
    assert decide_strategy(BEFORE, DEFAULTS, live(AFTER, SURGE, updated=1, replicas=2), view(replica(), replica(), gpus=4)) == SURGE


@pytest.mark.case("C084")
@pytest.mark.parametrize("modes", [("ReadWriteOnce",), ("ReadWriteOncePod",)])
def test_a_claim_for_one_node_at_a_time_is_never_surged_over(modes: tuple[str, ...]) -> None:
    for there in (None, live(BEFORE), live(AFTER, SURGE, replicas=2)):
        assert decide_strategy(AFTER, DEFAULTS, there, view(gpus=8, claims=(claim(*modes),))) == TERMINATE_FIRST
    rolling = make(rollout={"strategy": "RollingUpdate"})
    assert decide_strategy(rolling, DEFAULTS, None, view(claims=(claim(*modes),))) == TERMINATE_FIRST


def test_a_claim_for_many_nodes_hinders_nothing() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(BEFORE), view(gpus=8, claims=(claim("ReadWriteOnce", "ReadWriteMany"), claim("ReadOnlyMany")))) == SURGE


def test_recreate_is_honored() -> None:
    recreate = make(rollout={"strategy": "Recreate"})
    assert decide_strategy(recreate, DEFAULTS, live(BEFORE), view(gpus=8)) == DeploymentStrategy("Recreate")


@pytest.mark.parametrize("gpus", [0, 8])
def test_numbers_of_the_user_are_honored_with_and_without_room(gpus: int) -> None:
    rolling = make(rollout={"strategy": "RollingUpdate", "maxSurge": 2, "maxUnavailable": 0})
    for there in (None, live(BEFORE), live(rolling, PERCENT, replicas=2)):
        assert decide_strategy(rolling, DEFAULTS, there, view(replica(), gpus=gpus)) == DeploymentStrategy("RollingUpdate", 2, 0)


def test_a_quarter_that_would_round_to_no_way_gives_way_without_room() -> None:
    rolling = make(rollout={"strategy": "RollingUpdate"}, engine={"seed": 1})
    assert decide_strategy(rolling, DEFAULTS, live(BEFORE, PERCENT), view(replica(), gpus=4)) == PERCENT
    assert decide_strategy(rolling, DEFAULTS, live(BEFORE, PERCENT), view(replica(), gpus=2)) == TERMINATE_FIRST


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"maxSurge": 3}, DeploymentStrategy("RollingUpdate", 3, 1)),
        ({"maxUnavailable": "50%"}, DeploymentStrategy("RollingUpdate", 0, "50%")),
        ({"maxUnavailable": 0}, DeploymentStrategy("RollingUpdate", "25%", 0)),
    ],
)
def test_without_room_only_the_default_beside_a_number_of_the_user_gives_way(numbers: dict[str, Any], expected: DeploymentStrategy) -> None:
    rolling = make(rollout={"strategy": "RollingUpdate", **numbers}, engine={"seed": 1})
    assert decide_strategy(rolling, DEFAULTS, live(BEFORE, PERCENT), view(replica(), gpus=2)) == expected


def test_a_change_that_was_not_observed_yet_is_a_rollout_under_way() -> None:
    assert decide_strategy(AFTER, DEFAULTS, live(AFTER, TERMINATE_FIRST, observed=2), view(gpus=8)) == TERMINATE_FIRST
