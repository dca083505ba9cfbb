import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.overlay import overlay

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["containers", "initContainers", "env", "ports", "tolerations", "name", "containerPort"]), children, max_size=3)
    ),
    max_leaves=12,
)


@pytest.fixture
def pod() -> KubeObject:
    return {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu"}],
        "initContainers": [{"name": "engine", "image": "e:1", "env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}],
        "containers": [
            {
                "name": "api",
                "image": "a:1",
                "args": ["--x"],
                "ports": [{"name": "http", "containerPort": 8000}],
                "livenessProbe": {"httpGet": {"path": "/"}, "periodSeconds": 5},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def test_an_empty_overlay_changes_nothing(pod: KubeObject) -> None:
    assert overlay(pod, {}) == pod


def test_the_base_is_left_as_it_was(pod: KubeObject) -> None:
    before = copy.deepcopy(pod)
    overlay(pod, {"containers": [{"name": "api", "args": None}], "nodeSelector": {"zone": "a"}})
    assert pod == before


def test_containers_merge_by_name_and_keep_what_is_not_named(pod: KubeObject) -> None:
    (api,) = overlay(pod, {"containers": [{"name": "api", "image": "a:2"}]})["containers"]
    assert api == {**pod["containers"][0], "image": "a:2"}


def test_a_new_container_comes_after_the_generated_one(pod: KubeObject) -> None:
    assert [container["name"] for container in overlay(pod, {"containers": [{"name": "log"}]})["containers"]] == ["api", "log"]


def test_a_new_init_container_runs_before_the_engine_unless_it_stands_behind_it(pod: KubeObject) -> None:
    patch = {"initContainers": [{"name": "download"}, {"name": "engine", "image": "e:2"}, {"name": "proxy"}]}
    merged = overlay(pod, patch)["initContainers"]
    assert [(container["name"], container.get("image")) for container in merged] == [("download", None), ("engine", "e:2"), ("proxy", None)]
    assert [container["name"] for container in overlay(pod, {"initContainers": [{"name": "download"}]})["initContainers"]] == ["download", "engine"]


def test_maps_merge_and_null_deletes(pod: KubeObject) -> None:
    assert overlay(pod, {"nodeSelector": {"zone": "a"}})["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert overlay(pod, {"nodeSelector": {"disk": None}})["nodeSelector"] == {}
    assert "nodeSelector" not in overlay(pod, {"nodeSelector": None})


def test_a_probe_may_ask_in_another_way(pod: KubeObject) -> None:
    patch = {"containers": [{"name": "api", "livenessProbe": {"httpGet": None, "exec": {"command": ["true"]}}}]}
    assert overlay(pod, patch)["containers"][0]["livenessProbe"] == {"exec": {"command": ["true"]}, "periodSeconds": 5}


def test_mounts_merge_by_path_and_ports_by_number(pod: KubeObject) -> None:
    patch = {"name": "api", "volumeMounts": [{"name": "big", "mountPath": "/tmp"}], "ports": [{"containerPort": 8000, "hostPort": 80}, {"containerPort": 9}]}
    (api,) = overlay(pod, {"containers": [patch]})["containers"]
    assert api["volumeMounts"] == [{"name": "big", "mountPath": "/tmp"}]
    assert api["ports"] == [{"name": "http", "containerPort": 8000, "hostPort": 80}, {"containerPort": 9}]


def test_a_volume_and_a_variable_are_replaced_whole(pod: KubeObject) -> None:
    claim = {"name": "tmp", "persistentVolumeClaim": {"claimName": "big"}}
    merged = overlay(pod, {"volumes": [claim], "initContainers": [{"name": "engine", "env": [{"name": "A", "value": "1"}]}]})
    assert merged["volumes"] == [claim]
    assert merged["initContainers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_tolerations_are_added_and_other_lists_replaced(pod: KubeObject) -> None:
    merged = overlay(pod, {"tolerations": [{"key": "spot"}, {"key": "gpu"}], "containers": [{"name": "api", "args": ["--y"]}]})
    assert merged["tolerations"] == [{"key": "gpu"}, {"key": "spot"}]
    assert merged["containers"][0]["args"] == ["--y"]


def test_a_list_that_names_nothing_replaces_for_the_api_server_to_refuse(pod: KubeObject) -> None:
    assert overlay(pod, {"containers": [{"image": "a"}]})["containers"] == [{"image": "a"}]
    assert overlay(pod, {"containers": "api"})["containers"] == "api"


@given(base=JSON, patch=JSON)
def test_no_overlay_raises(base: object, patch: object) -> None:
    overlay({"containers": base}, {"containers": patch})
