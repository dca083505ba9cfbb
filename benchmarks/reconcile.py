"""One operator and a thousand new InferenceDeployments without replicas on a real API server: medians of three runs. Needs a cluster (tests/e2e)."""

import statistics
import tempfile
from pathlib import Path

from bandwidth import Bracketed, bracketed
from cluster.cluster import Cluster
from cluster.kinds import Local
from cluster.waiting import wait_until
from many import Cost, measure
from operated import operated
from options import read_options
from report import Row, figure, publish

NUM_OBJECTS = 1000
NUM_RUNS = 3
GONE_SECONDS = 300.0


def run(cluster: Cluster, number: int) -> Cost:
    """In a namespace of its own, which is gone when this returns."""
    with tempfile.TemporaryDirectory() as folder, operated(cluster, "benchmark", Path(folder)) as place:
        cost = measure(place, number)
    wait_until(lambda: cluster.find("Namespace", place.namespace) is None, GONE_SECONDS, f"namespace {place.namespace} is gone")
    return cost


def main() -> None:
    options = read_options(__doc__)
    cluster, number = Cluster(Local()), options.scaled(NUM_OBJECTS)
    runs = bracketed(lambda: [run(cluster, number) for _ in range(NUM_RUNS)])

    def row(name: str, unit: str, field: str, divisor: float = 1.0) -> Row:
        median = statistics.median(getattr(cost, field) for cost in runs.value) / divisor
        return Row(f"{number} InferenceDeployments: {name}", unit, "lower", figure(Bracketed(median, runs.before, runs.after)))

    rows = [
        row("last create to all reconciled", "s", "seconds"),
        row("operator's CPU time", "s", "cpu_seconds"),
        row("operator's peak memory", "MB", "peak_bytes", 1e6),
        row("writes after a restart", "", "writes_after_restart"),
        row("operator's CPU time after a restart", "s", "restart_cpu_seconds"),
    ]
    publish("reconcile", rows, None)


if __name__ == "__main__":
    main()
