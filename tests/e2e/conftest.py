"""The cluster that every test here runs on."""

import pytest

from cluster.cluster import Cluster
from cluster.kinds import KINDS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", choices=sorted(KINDS), default="local", help="local: `make cluster`; kind: Docker; current: kubectl's current context")


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("e2e")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(KINDS[request.config.getoption("--cluster")]())
