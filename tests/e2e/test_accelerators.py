"""Rollouts of replicas that need accelerators, on a node with few of them. The devices are made up, and so are the engines: only the scheduler counts them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.cluster import Cluster
from deployed import START_SECONDS, Deployed, deployed
from history import history
from installation import TAG, Installation
from operated import MODEL, scripted

RESOURCE = "e2e.stoker.dev/accelerator"
DEVICES_OF_REPLICA = 2
SURGE = {"maxSurge": 1, "maxUnavailable": 0}
TERMINATE_FIRST = {"maxSurge": 0, "maxUnavailable": 1}


@pytest.fixture
def devices(cluster: Cluster) -> Iterator[Callable[[int], None]]:
    """Gives the first node so many of them, until the test ends."""
    node = cluster.nodes()[0]["metadata"]["name"]
    yield lambda count: cluster.set_extended_resource(RESOURCE, count, node)
    none = {RESOURCE: None}
    cluster.patch_status("Node", node, None, {"status": {"capacity": none, "allocatable": none}})


@contextmanager
def replica_with_devices(cluster: Cluster, stoker: Installation, name: str, **spec: object) -> Iterator[Deployed]:
    common: Mapping[str, Any] = {
        "model": {"uri": MODEL},
        "engine": {"image": f"localhost/stoker-gateway:{TAG}"},
        "accelerator": {"resourceName": RESOURCE, "count": DEVICES_OF_REPLICA},
        "lifecycle": {"preStopDelay": "1s", "drainTimeout": "5s"},
        "podTemplate": scripted({}),
    }
    with deployed(cluster, stoker.models, name, {**common, **spec}) as model:
        yield model


def change_template(cluster: Cluster, model: Deployed) -> None:
    """Returns when the change is complete."""
    old = model.pod_names
    model.patch(engine={"env": [{"name": "CHANGED", "value": "yes"}]})
    cluster.wait_until(lambda: model.is_ready and not set(old) & set(model.pod_names), START_SECONDS, "the rollout is complete")
    assert len(model.pods) == 1


@pytest.mark.case("C083")
def test_a_rollout_terminates_first_where_no_accelerator_is_free(cluster: Cluster, stoker: Installation, devices: Callable[[int], None]):
    devices(DEVICES_OF_REPLICA)
    with replica_with_devices(cluster, stoker, "full") as model:
        change_template(cluster, model)
        assert model.deployment["spec"]["strategy"]["rollingUpdate"] == TERMINATE_FIRST


@pytest.mark.case("C083")
def test_a_rollout_surges_where_accelerators_are_free(cluster: Cluster, stoker: Installation, devices: Callable[[int], None]):
    devices(2 * DEVICES_OF_REPLICA)
    with replica_with_devices(cluster, stoker, "roomy") as model, history(cluster, "Deployment", model.name, model.namespace) as seen:
        change_template(cluster, model)
        assert model.deployment["spec"]["strategy"]["rollingUpdate"] == SURGE
        assert min(version["status"].get("availableReplicas", 0) for version in seen.versions) >= 1


@pytest.mark.case("C083")
def test_one_replica_rolls_with_the_shares_of_a_rolling_update_where_no_accelerator_is_free(
    cluster: Cluster, stoker: Installation, devices: Callable[[int], None]
):
    devices(DEVICES_OF_REPLICA)
    with replica_with_devices(cluster, stoker, "shares", rollout={"strategy": "RollingUpdate"}) as model:
        change_template(cluster, model)
