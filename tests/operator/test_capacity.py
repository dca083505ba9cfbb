from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_operator.capacity import has_room, requests
from stoker_operator.kube_object import KubeObject

GPU = "nvidia.com/gpu"
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
FIELDS = st.sampled_from(["containers", "resources", "requests", "affinity", "nodeAffinity", "nodeSelector", "tolerations", "key", "values", "effect"])
JSON = st.recursive(SCALARS, lambda children: st.lists(children, max_size=2) | st.dictionaries(FIELDS, children, max_size=3), max_leaves=10)
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str = "one", **changes: Any) -> KubeObject:
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "2", **changes.pop("allocatable", {})}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": changes.pop("ready", "True")}]}
    return {"metadata": {"name": name, "labels": {"disk": "ssd", "gen": "9", **changes.pop("labels", {})}}, "spec": changes, "status": status}


def pod_spec(gpus: int = 0, cpu: str = "1", **changes: Any) -> KubeObject:
    engine = {"name": "engine", "restartPolicy": "Always", "resources": {"limits": {GPU: gpus}}}
    return {"initContainers": [engine], "containers": [{"name": "api", "resources": {"requests": {"cpu": cpu}}}], **changes}


def running(spec: KubeObject, node_name: str = "one", phase: str = "Running") -> KubeObject:
    return {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": node_name}, "status": {"phase": phase}}


def test_sidecars_run_beside_the_containers_and_init_containers_before_them() -> None:
    spec = {
        "initContainers": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
            {"name": "b", "resources": {"requests": {"cpu": "5", "memory": "1Gi"}}},
            {"name": "c", "resources": {"limits": {"cpu": "2"}}, "restartPolicy": "Always"},
        ],
        "containers": [{"name": "d", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "4"}}}],
        "overhead": {"cpu": "100m"},
    }
    assert requests(spec) == {"cpu": Decimal("6.1"), "memory": Decimal(2**30), "pods": 1}


def test_there_is_room_while_a_node_has_accelerators_left() -> None:
    assert has_room(pod_spec(2), [node()], [])
    assert not has_room(pod_spec(2), [node()], [running(pod_spec(1))])
    assert has_room(pod_spec(1), [node()], [running(pod_spec(1))])
    assert has_room(pod_spec(2), [node(), node("two")], [running(pod_spec(1))])


def test_room_is_on_one_node_not_over_several() -> None:
    assert not has_room(pod_spec(4), [node(), node("two")], [])


def test_processors_memory_and_the_number_of_pods_count_too() -> None:
    assert not has_room(pod_spec(cpu="4001m"), [node()], [running(pod_spec(cpu="4"))])
    assert has_room(pod_spec(cpu="4"), [node()], [running(pod_spec(cpu="4"))])
    assert not has_room(pod_spec(), [node(allocatable={"pods": "1"})], [running(pod_spec())])


def test_a_finished_pod_takes_no_room_and_one_that_ends_still_does() -> None:
    assert has_room(pod_spec(2), [node()], [running(pod_spec(2), phase="Succeeded"), running(pod_spec(2), phase="Failed")])
    ending = running(pod_spec(2))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not has_room(pod_spec(2), [node()], [ending])


@pytest.mark.parametrize("changes", [{"ready": "False"}, {"ready": "Unknown"}, {"unschedulable": True}, {"allocatable": {GPU: "0"}}])
def test_a_node_that_takes_no_pods_has_no_room(changes: dict[str, Any]) -> None:
    assert not has_room(pod_spec(1), [node(**changes)], [])


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd", "hdd"]}, True),
        ({"key": "disk", "operator": "In", "values": ["hdd"]}, False),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "disk", "operator": "DoesNotExist"}, False),
        ({"key": "gen", "operator": "Gt", "values": ["8"]}, True),
        ({"key": "gen", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "disk", "operator": "Gt", "values": ["8"]}, False),
        ({"key": "disk", "operator": "Near"}, False),
    ],
)
def test_the_node_affinity_is_kept_to(expression: KubeObject, *, allowed: bool) -> None:
    terms = {"nodeSelectorTerms": [{}, {"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert has_room(pod_spec(affinity=affinity), [node()], []) == allowed


def test_the_node_selector_is_kept_to() -> None:
    assert has_room(pod_spec(nodeSelector={"disk": "ssd"}), [node()], [])
    assert not has_room(pod_spec(nodeSelector={"disk": "hdd"}), [node()], [])


@pytest.mark.parametrize(
    ("toleration", "allowed"),
    [
        (None, False),
        ({"key": GPU, "operator": "Exists"}, True),
        ({"key": GPU, "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": GPU, "value": "no"}, False),
        ({"key": GPU, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
    ],
)
def test_a_taint_has_to_be_tolerated(toleration: KubeObject | None, *, allowed: bool) -> None:
    taints = [{"key": GPU, "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    assert has_room(pod_spec(tolerations=[toleration] if toleration else []), [node(taints=taints)], []) == allowed


def test_what_is_no_quantity_stops_no_arithmetic() -> None:
    assert has_room(pod_spec(cpu="many"), [node()], [])


@given(pod=st.dictionaries(FIELDS, JSON), terms=JSON)
def test_what_is_no_pod_raises_nothing(pod: KubeObject, terms: object) -> None:
    taints = [{"key": GPU, "effect": "NoSchedule"}]
    has_room(pod, [node()], [])
    has_room({**pod, "affinity": {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": terms}}}}, [node(taints=taints)], [])
    has_room({"affinity": {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": [{"matchExpressions": terms}]}}}, "tolerations": terms}, [node(taints=taints)], [])
