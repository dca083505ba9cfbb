"""The cluster that every test here runs on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import local
from cluster.cluster import Cluster
from cluster.kinds import KINDS
from images.load import load_images
from installation import Installation, installation
from operated import Operated, operated
from recording_proxy import RecordingProxy, recording_proxy

FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", choices=sorted(KINDS), default="local", help="local: `make cluster`; kind: Docker; current: kubectl's current context")


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("e2e")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes lines that are shown when all tests have ended."""
    return request.config.stash.setdefault(FIGURES, []).append


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(KINDS[request.config.getoption("--cluster")]())


@pytest.fixture(scope="session")
def stoker(cluster: Cluster) -> Iterator[Installation]:
    """The chart's operator and gateways, for all tests."""
    with installation(cluster) as installed:
        yield installed


@pytest.fixture
def place(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Operated]:
    """A namespace, named after the module, in which a test starts operators of its own."""
    with operated(cluster, request.path.stem.removeprefix("test_").replace("_", "-"), tmp_path) as place:
        yield place


@pytest.fixture
def proxy(place: Operated) -> Iterator[RecordingProxy]:
    """Between the operators of `place` and the API server."""
    with recording_proxy(place.account.kubeconfig) as proxy:
        yield proxy


@pytest.fixture
def second_node(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """The name of another node. The local cluster starts one where it has none, and it takes pods during this test only."""
    if request.config.getoption("--cluster") != "local":
        if len(cluster.nodes()) < 2:
            pytest.skip("this cluster has one node")
        yield str(cluster.nodes()[1]["metadata"]["name"])
        return
    local.up(2)
    load_images(local.nodes())
    node = local.nodes()[1].name
    cluster.kubectl("uncordon", node)
    try:
        yield node
    finally:
        cluster.kubectl("cordon", node)
