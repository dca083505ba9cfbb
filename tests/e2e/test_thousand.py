"""One operator and many InferenceDeployments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from many import Cost, measure
from operated import operated

MAX_SECONDS = 120.0
MAX_CPU_SECONDS = 60.0
MAX_BYTES = 400e6


@pytest.fixture
def measured(cluster: Cluster, tmp_path: Path, report: Callable[[str], None]) -> Callable[[int], Cost]:
    """What so many cost."""

    def measured(number: int) -> Cost:
        with operated(cluster, "many", tmp_path) as place:
            cost = measure(place, number)
        report(str(cost))
        return cost

    return measured


def test_a_hundred_inference_deployments_cost_little_and_a_restart_writes_nothing(measured: Callable[[int], Cost]) -> None:
    cost = measured(100)
    # Mostly the API server's, which others may keep waiting; what is the operator's own is its CPU.
    assert cost.seconds <= MAX_SECONDS
    assert cost.cpu_seconds <= MAX_CPU_SECONDS / 10
    assert cost.peak_bytes <= MAX_BYTES
    assert cost.writes_after_restart == 0


@pytest.mark.stress
def test_a_thousand_inference_deployments_are_reconciled_in_two_minutes(measured: Callable[[int], Cost]) -> None:
    cost = measured(1000)
    assert cost.seconds <= MAX_SECONDS
    assert cost.cpu_seconds <= MAX_CPU_SECONDS
    assert cost.peak_bytes <= MAX_BYTES
    assert cost.writes_after_restart == 0
