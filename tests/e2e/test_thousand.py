"""One operator and many InferenceDeployments."""

from pathlib import Path

import pytest

from cluster.cluster import Cluster
from many import Cost, measure
from operated import operated

MAX_SECONDS = 120.0
MAX_CPU_SECONDS = 60.0
MAX_BYTES = 400e6


def _measured(cluster: Cluster, folder: Path, number: int) -> Cost:
    with operated(cluster, "many", folder) as place:
        cost = measure(place, number)
    print(cost)  # noqa: T201
    return cost


def test_a_hundred_inference_deployments_take_a_tenth_of_what_a_thousand_may(cluster: Cluster, tmp_path: Path) -> None:
    cost = _measured(cluster, tmp_path, 100)
    assert cost.seconds <= MAX_SECONDS / 10
    assert cost.cpu_seconds <= MAX_CPU_SECONDS / 10
    assert cost.peak_bytes <= MAX_BYTES
    assert cost.writes_after_restart == 0


@pytest.mark.stress
def test_a_thousand_inference_deployments_are_reconciled_in_two_minutes(cluster: Cluster, tmp_path: Path) -> None:
    cost = _measured(cluster, tmp_path, 1000)
    assert cost.seconds <= MAX_SECONDS
    assert cost.cpu_seconds <= MAX_CPU_SECONDS
    assert cost.peak_bytes <= MAX_BYTES
    assert cost.writes_after_restart == 0
