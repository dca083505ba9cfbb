"""What the programs leave out of their imports: each of these takes 0.03 to 2 s of a start."""

import subprocess
import sys

import pytest

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
    assert imported("stoker_operator.__main__", "numpy", "fastapi", "zmq", "torch", *HEAVY) == {"yaml"}
