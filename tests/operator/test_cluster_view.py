import pytest

from stoker_operator.capacity import has_room, requests
from stoker_operator.cluster_view import claim_names, node_in_brief, pod_in_brief


def test_the_claims_of_a_pod_are_those_that_its_volumes_name() -> None:
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}]
    assert claim_names({"volumes": volumes}) == {"weights"} and claim_names({}) == set()


@pytest.mark.parametrize("source", [5, "claimName", [], {}, {"claimName": 5}, {"claimName": "../secrets/a"}])
def test_a_source_that_is_no_claim_names_none(source: object) -> None:
    assert claim_names({"volumes": [{"name": "weights", "persistentVolumeClaim": source}]}) == set()


@pytest.mark.parametrize("volumes", [5, "persistentVolumeClaim", {"claimName": "a"}, [5]])
def test_volumes_that_are_no_list_of_volumes_name_no_claim(volumes: object) -> None:
    assert claim_names({"volumes": volumes}) == set()


def test_a_pod_in_brief_takes_the_room_of_the_whole_one() -> None:
    sidecar = {"name": "engine", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}, "env": [{"name": "A", "value": "b"}]}
    spec = {
        "nodeName": "a",
        "initContainers": [{"name": "first", "resources": {"requests": {"cpu": "3"}}}, sidecar],
        "containers": [{"name": "api", "image": "api", "resources": {"requests": {"memory": "1Gi"}}}, {"name": "bare"}],
        "overhead": {"cpu": "100m"},
    }
    pod = {"metadata": {"name": "p", "namespace": "ns", "managedFields": [{}]}, "spec": spec, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    brief = pod_in_brief(pod)
    assert requests(brief["spec"]) == requests(spec) and brief["spec"]["nodeName"] == "a"
    assert brief["metadata"] == {"name": "p", "namespace": "ns"} and brief["status"] == {"phase": "Running"}


def test_a_node_in_brief_takes_the_pods_of_the_whole_one() -> None:
    status = {"allocatable": {"cpu": "2", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["a"]}] * 50}
    node = {
        "metadata": {"name": "a", "labels": {"zone": "x"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
        "status": status,
    }
    brief = node_in_brief(node)
    assert "images" not in brief["status"]
    for cpu, tolerations, fits in (("2", [{"operator": "Exists"}], True), ("3", [{"operator": "Exists"}], False), ("1", [], False)):
        pod_spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "nodeSelector": {"zone": "x"}, "tolerations": tolerations}
        assert has_room(pod_spec, [brief], []) is has_room(pod_spec, [node], []) is fits
