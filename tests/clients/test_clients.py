"""Clients that people use, unmodified, each in an environment of its own (README.md)."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress

PYTHON_CLIENTS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/client.py"))


@pytest.mark.parametrize("name", PYTHON_CLIENTS)
def test_a_python_client_works_unchanged(name: str, run_python_client: Callable[[str], None]) -> None:
    run_python_client(name)


def test_the_node_client_works_unchanged(run_node_client: Callable[[str], None]) -> None:
    run_node_client("openai_node")
