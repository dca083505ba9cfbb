"""The cluster of processes on this machine: up, down, and whether it is up."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import control_groups, control_plane, network, packages, processes
from cluster.build import COREDNS, HELM, KUBE, build
from cluster.certificates import Authority
from cluster.network import NodeNetwork, inside
from cluster.node import Node
from cluster.paths import CACHE, KUBECONFIG, LOCK, STATE
from cluster.pause import build_pause
from cluster.waiting import wait_until


def up(num_nodes: int) -> None:
    """Starts what is not up; a cluster that lost a process, or has another number of nodes, is made anew."""
    with _lock():
        if is_up() and len(nodes()) == num_nodes:
            return
        packages.install_missing()
        kubernetes, coredns, pause = build(KUBE), build(COREDNS), build_pause()
        build(HELM)
        _remove()
        STATE.mkdir(parents=True)
        authority = Authority(STATE / "pki")
        authority.create()
        processes.start_init(pause / "pause")
        started = [Node(NodeNetwork(number)) for number in range(num_nodes)]
        for node in started:
            node.network.create()
        control_plane.start(kubernetes, coredns, authority)
        for node in started:
            node.start(kubernetes, authority, pause / "pause.tar")
        wait_until(lambda: _nodes_ready(kubernetes, num_nodes), 120, f"{num_nodes} nodes are Ready (see {STATE}/log)")


def down() -> None:
    """Ends every process, and removes every mount, network namespace, control group and file; fine where some or all are gone already."""
    with _lock():
        _remove()


def is_up() -> bool:
    """Whether every process that was started runs, and the API server answers."""
    return bool(processes.recorded()) and not processes.dead() and control_plane.is_ready(KUBE.folder)


def nodes() -> list[Node]:
    return [Node(NodeNetwork(int(path.name.removeprefix("node")))) for path in sorted(STATE.glob("node*"))]


def load_image(archive: Path) -> None:
    """Imports a tar of OCI or Docker images on every node."""
    for node in nodes():
        node.load_image(archive)


def path_entries() -> list[Path]:
    """The folders with kubectl and helm."""
    return [KUBE.folder, HELM.folder]


def environment() -> dict[str, str]:
    """What programs need to find the cluster, kubectl and helm."""
    return {"KUBECONFIG": str(KUBECONFIG), "PATH": os.pathsep.join([*map(str, path_entries()), os.environ["PATH"]])}


def _nodes_ready(kubernetes: Path, num_nodes: int) -> bool:
    query = ("get", "nodes", "-o", 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}')
    command = inside(network.NAMESPACE, str(kubernetes / "kubectl"), f"--kubeconfig={KUBECONFIG}", *query)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split() == ["True"] * num_nodes


def _remove() -> None:
    processes.kill_all()
    network.delete_all()
    control_groups.delete_control_groups()
    shutil.rmtree(STATE, ignore_errors=True)


@contextmanager
def _lock() -> Iterator[None]:
    """One start or end at a time on this machine; the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
