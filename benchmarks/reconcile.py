"""One operator and a thousand new InferenceDeployments without replicas on a real API server: medians of three runs. Needs a cluster (tests/e2e)."""

import tempfile
from functools import partial
from pathlib import Path

from cluster.cluster import Cluster
from cluster.kinds import Local
from cluster.waiting import wait_until
from many import Cost, measure
from operated import operated
from options import read_options
from report import Metric
from rounds import OURS, Metrics

NUM_OBJECTS = 1000
METRICS = (
    Metric("seconds", "last create to all reconciled", "s", "lower"),
    Metric("cpu_seconds", "operator's CPU time", "s", "lower"),
    Metric("peak_bytes", "operator's peak memory", "B", "lower"),
    Metric("writes_after_restart", "writes after a restart", "", "lower"),
    Metric("restart_cpu_seconds", "operator's CPU time after a restart", "s", "lower"),
)
GONE_SECONDS = 300.0


def run(cluster: Cluster, number: int) -> Cost:
    """In a namespace of its own, which is gone when this returns."""
    with tempfile.TemporaryDirectory() as folder, operated(cluster, "benchmark", Path(folder)) as place:
        cost = measure(place, number)
    wait_until(lambda: cluster.find("Namespace", place.namespace) is None, GONE_SECONDS, f"namespace {place.namespace} is gone")
    return cost


def metrics(cluster: Cluster, number: int, _round: int) -> Metrics:
    cost = run(cluster, number)
    return {metric.key: float(getattr(cost, metric.key)) for metric in METRICS}


def main() -> None:
    options = read_options(__doc__, ("all",))
    cluster, number = Cluster(Local()), options.scaled(NUM_OBJECTS)
    report = options.report("reconcile")
    report.add(options.measure(f"{number} InferenceDeployments", {OURS: partial(metrics, cluster, number)}), METRICS)
    report.finish()


if __name__ == "__main__":
    main()
