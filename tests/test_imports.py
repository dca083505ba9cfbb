"""What the programs leave out of their imports: each of these takes 0.03 to 2 s of a start."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HEAVY = ("transformers", "gguf", "huggingface_hub", "kopf", "kubernetes", "yaml", "rich", "httpx", "requests", "pandas", "scipy", "sympy", "triton")
OF_TORCH = ("torch._dynamo", "torch._inductor", "torch.onnx", "torchvision")


def imported(module: str, *names: str) -> set[str]:
    """Those of `names` that a process has imported with `module`."""
    program = f"import sys, {module}; print(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["stoker_gateway.api.server", "stoker_engine.core.run"])
def test_the_api_and_the_engine_until_its_handshake_import_nothing_heavy(module: str) -> None:
    assert imported(module, "torch", *HEAVY) == set()


def test_the_worker_imports_of_torch_what_it_runs_and_nothing_else_heavy() -> None:
    assert imported("stoker_engine.executor.uniproc", *OF_TORCH, *HEAVY) == set()


def test_stoker_up_imports_neither_a_client_nor_a_terminal_before_the_programs_start() -> None:
    assert imported("stoker_operator.__main__", "numpy", "starlette", "zmq", "torch", *HEAVY) == {"yaml"}


def imported_modules(component: str) -> set[str]:
    """The first parts of what a component's modules import, anywhere in them."""
    nodes = [node for path in (ROOT / component).rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


distributions_by_module = functools.cache(packages_distributions)


def installed_with(requirements: list[str]) -> set[str]:
    """The distributions that come with these, those they require included."""
    found: set[str] = set()
    while requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirements.pop())[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            try:
                requirements += [each for each in requires(name) or () if "extra ==" not in each]
            except PackageNotFoundError:
                continue  # of another system
    return found


@pytest.mark.parametrize(("component", "extras"), [("gateway", ("gateway", "otel")), ("operator", ("operator",))])
def test_an_image_has_whatever_its_programs_import(component: str, extras: tuple[str, ...]) -> None:
    declared = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    there = installed_with(declared)
    distributions = distributions_by_module()
    missing = {
        name
        for name in imported_modules(component)
        if not name.startswith("stoker_") and there.isdisjoint(one.lower().replace("_", "-") for one in distributions.get(name, ()))
    }
    assert missing == set()
