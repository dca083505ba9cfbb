"""Many InferenceDeployments without replicas: what one operator takes for them."""

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cluster.cluster import Cluster, Manifest
from cluster.waiting import wait_until
from deployed import KIND, LABEL
from operated import Operated
from operator_process import OperatorProcess

CHILDREN = ("ServiceAccount", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy")
LIMIT_SECONDS = 600.0
NUM_CREATORS = 8
PORT = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}


@dataclass(frozen=True, slots=True)
class Cost:
    """`seconds` are from the last create until all is there; CPU and memory are the operator's, from its start on."""

    number: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    writes_after_restart: int
    restart_cpu_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.number} InferenceDeployments: {self.seconds:.1f} s after the last create, {self.cpu_seconds:.1f} s of CPU, {self.peak_bytes / 1e6:.0f} MB, "
            f"after a restart {self.writes_after_restart} writes, {self.restart_cpu_seconds:.1f} s of CPU"
        )


def measure(place: Operated, number: int) -> Cost:
    """Creates them while an operator works, then restarts it."""
    with place.operator("first") as first:
        wait_until(lambda: "Holding the Lease" in first.log.read_text(), 60, "the operator leads")
        create(place, number)
        began = time.monotonic()
        wait_until(lambda: _is_idle(first, number) and is_done(place.cluster, place.namespace, number), LIMIT_SECONDS, f"all {number} are as they should be")
        seconds = time.monotonic() - began
        cpu_seconds, peak_bytes = _cpu_seconds(first), _peak_bytes(first)
    since = datetime.now(UTC)
    with place.operator("second") as second:
        wait_until(lambda: second.num_reconciled >= number, LIMIT_SECONDS, "all were looked at")
        restart_cpu_seconds = _cpu_seconds(second)
    writes = [write for write in place.cluster.audit_writes(since, place.account.user) if write.resource != "leases"]
    return Cost(number, seconds, cpu_seconds, peak_bytes, len(writes), restart_cpu_seconds)


def create(place: Operated, number: int) -> None:
    manifests = [place.manifest(f"m{index}") for index in range(number)]
    with ThreadPoolExecutor(NUM_CREATORS) as pool:
        list(pool.map(place.cluster.apply, manifests))


def _is_idle(process: OperatorProcess, number: int) -> bool:
    """Asked before the cluster is, which a thousand objects make busy enough."""
    return process.num_reconciled >= number and process.metric("stoker_operator_queue_depth") == 0


def is_done(cluster: Cluster, namespace: str, number: int) -> bool:
    """Asked for in the order of what is done last, so that it is cheap to ask too early."""
    found = cluster.list(KIND, namespace)
    if len(found) != number or not all(_is_current(each) for each in found):
        return False
    names = {str(each["metadata"]["name"]) for each in found}
    by_kind = {kind: cluster.list(kind, namespace, LABEL) for kind in CHILDREN}
    return all(_names(children) == names for children in by_kind.values()) and _are_right(by_kind["Deployment"], by_kind["Service"])


def _is_current(obj: Manifest) -> bool:
    return bool(obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"])


def _names(objects: Iterable[Manifest]) -> set[str]:
    return {str(each["metadata"]["name"]) for each in objects}


def _are_right(deployments: Iterable[Manifest], services: Iterable[Manifest]) -> bool:
    for deployment in deployments:
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        containers = [container["name"] for part in ("initContainers", "containers") for container in spec["template"]["spec"][part]]
        if (spec["replicas"], spec["selector"]["matchLabels"], containers) != (0, {LABEL: name}, ["engine", "api"]):
            return False
    return all((each["spec"]["selector"], each["spec"]["ports"]) == ({LABEL: each["metadata"]["name"]}, [PORT]) for each in services)


def _cpu_seconds(process: OperatorProcess) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_bytes(process: OperatorProcess) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
