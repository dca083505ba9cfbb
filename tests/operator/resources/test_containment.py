import copy
from typing import Any

import pytest

from stoker_operator.resources.containment import contains


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"requests": {"cpu": "1000m", "memory": "1024Mi"}}, {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}),
        ({"limits": {"nvidia.com/gpu": 2}}, {"limits": {"nvidia.com/gpu": "2"}}),
        ({"sizeLimit": 1024}, {"sizeLimit": "1Ki"}),
        (
            {"containers": [{"name": "b"}, {"name": "a", "image": "x"}]},
            {"containers": [{"name": "a", "image": "x", "a": 1}, {"name": "b"}, {"name": "c"}]},
        ),
        ({"ports": [{"name": "http", "port": 80}]}, {"ports": [{"name": "http", "port": 80, "nodePort": 31000}]}),
        ({"args": ["a", "b"]}, {"args": ["a", "b"]}),
        ({"resources": {}, "env": [], "value": ""}, {}),
        ({"hostNetwork": False, "initialDelaySeconds": 0}, {}),
    ],
)
def test_it_is_contained(desired: dict[str, Any], live: dict[str, Any]) -> None:
    assert contains(desired, live)


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": 1}, {"a": True}),
        ({"a": {"b": 1}}, {"a": None}),
        ({"a": {"b": 1}}, {"a": [1]}),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1001m"}}),
        ({"requests": {"cpu": "1"}}, {"requests": {}}),
        ({"args": ["1"]}, {"args": ["1.0"]}),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}),
        ({"args": ["a"]}, {"args": ["a", "b"]}),
        ({"containers": [{"name": "a"}]}, {"containers": [{"name": "b"}]}),
        ({"tolerations": []}, {"tolerations": [{"key": "gpu"}]}),
        ({"automountServiceAccountToken": False}, {}),
        ({"replicas": 0}, {}),
        ({"ports": [{"port": 53, "protocol": "UDP"}]}, {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}),
    ],
)
def test_it_is_not_contained(desired: dict[str, Any], live: dict[str, Any]) -> None:
    assert not contains(desired, live)


def test_every_changed_leaf_of_every_child_is_seen(render_by_kind: Any) -> None:
    children = render_by_kind(uri="hf://org/name", accelerator={"count": 1, "product": ["A"]}, model={"credentialsSecretRef": {"name": "s"}})
    for child in children.values():
        for path in leaf_paths(child):
            changed = copy.deepcopy(child)
            place = follow(changed, path[:-1])
            place[path[-1]] = f"{place[path[-1]]}-other"
            assert not contains(child, changed), path
        assert contains(child, copy.deepcopy(child))


def leaf_paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, child in children for leaf in leaf_paths(child, (*path, key))]
    return found if isinstance(value, dict | list) else [path]


def follow(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value
