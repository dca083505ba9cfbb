"""The cluster of processes on this machine: up, down, and whether it is up."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cluster import control_groups, control_plane, network, packages, processes
from cluster.build import COREDNS, HELM, KUBE, build
from cluster.certificates import Authority
from cluster.network import NodeNetwork
from cluster.node import Node
from cluster.paths import CACHE, KUBECONFIG, LOCK, STATE
from cluster.pause import build_pause
from cluster.waiting import wait_until


def up(num_nodes: int) -> bool:
    """Starts the cluster where it is not up, adds the nodes that are missing, and returns whether it was started.

    A cluster that lost a process, or whose start was cut short, is made anew.
    """
    with _lock():
        was_up = is_up()
        if not was_up:
            packages.install_missing()
            kubernetes, coredns, pause = build(KUBE), build(COREDNS), build_pause()
            build(HELM)
            _remove()
            _authority().create()
            processes.start_init(pause / "pause")
            NodeNetwork(0).create()
            control_plane.start(kubernetes, coredns, _authority())
            _start_node(NodeNetwork(0))
        for number in range(len(nodes()), num_nodes):
            _add_node(NodeNetwork(number))
        return not was_up


def down() -> None:
    """Ends every process, and removes every mount, network namespace, control group and file; fine where some or all are gone already."""
    with _lock():
        _remove()


def is_up() -> bool:
    """Whether its start came to an end, every process that was started runs, and the API server answers."""
    return _complete(Node(NodeNetwork(0))).exists() and not processes.dead() and control_plane.is_ready(KUBE.folder)


def nodes() -> list[Node]:
    """Those whose start came to an end."""
    found = [Node(NodeNetwork(int(path.name.removeprefix("node")))) for path in sorted(STATE.glob("node*"))]
    return [node for node in found if _complete(node).exists()]


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


def _authority() -> Authority:
    return Authority(STATE / "pki")


def _add_node(network: NodeNetwork) -> None:
    if Node(network).folder.exists():
        raise RuntimeError(f"an earlier start of {network.node} was cut short: `make cluster-down` first")
    network.create()
    _start_node(network)


def _start_node(network: NodeNetwork) -> None:
    node = Node(network)
    node.start(build(KUBE), _authority(), build_pause() / "pause.tar")
    wait_until(partial(control_plane.is_node_ready, build(KUBE), node.name), 120, f"{node.name} is Ready (see {STATE}/log)")
    _complete(node).touch()


def _complete(node: Node) -> Path:
    """The file that is there when the node was Ready once."""
    return node.folder / "complete"


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
