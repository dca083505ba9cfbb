"""Kernels on a GPU where there is one, else under Triton's interpreter, which is chosen when Triton and a kernel are imported."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _torch_dtypes() -> dict[Any, torch.dtype]:
    import triton.language as tl

    return {
        tl.float16: torch.float16,
        tl.bfloat16: torch.bfloat16,
        tl.float32: torch.float32,
        tl.float64: torch.float64,
        tl.float8e4nv: torch.float8_e4m3fn,
        tl.float8e5: torch.float8_e5m2,
    }


def _convert_float(values: np.ndarray, from_dtype: Any, to_dtype: Any, rounding_mode: Any) -> np.ndarray:
    """What the hardware does, to nearest even. The interpreter's own cuts bits off, and loses the carry where it rounds up."""
    bits = {1: (np.uint8, torch.uint8), 2: (np.uint16, torch.uint16), 4: (np.uint32, torch.uint32), 8: (np.uint64, torch.uint64)}
    dtypes = _torch_dtypes()
    source, target = dtypes[from_dtype], dtypes[to_dtype]
    array = np.ascontiguousarray(values).view(bits[source.itemsize][0])
    converted = torch.from_numpy(array.reshape(-1)).view(source).to(target).view(bits[target.itemsize][1])
    return converted.numpy().reshape(values.shape)


def _import_kernels() -> None:
    package = importlib.import_module("stoker_kernels.triton")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


if DEVICE == "cpu":
    assert "triton" not in sys.modules, "triton was imported before these tests could choose its interpreter; run tests/kernels/triton by itself"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        _import_kernels()
        importlib.import_module("triton.runtime.interpreter")._convert_float = _convert_float


@pytest.fixture(scope="module", autouse=True)
def interpreted() -> Iterator[None]:
    """One thread: the references' tensors are too small for two, which would wait for each other on busy cores."""
    num_threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as environment:
        if DEVICE == "cpu":
            environment.setenv("TRITON_INTERPRET", "1")
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(num_threads)


@pytest.fixture(scope="session")
def device() -> str:
    return DEVICE


@pytest.fixture(scope="session")
def randn() -> Callable[..., Tensor]:
    """`randn(seed, *shape, dtype=...)`: the same numbers for the same arguments, on the tests' device."""

    def make(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)

    return make


@pytest.fixture(params=[pytest.param(20, id="20"), pytest.param(200, id="200", marks=pytest.mark.stress)])
def on_random_shapes(request: pytest.FixtureRequest) -> Callable[..., Callable[[Callable[..., None]], None]]:
    """`@on_random_shapes(size=st.integers(1, 9))` above a check runs it on 20 drawn shapes, the same each time; on 200 among the stress tests."""

    def draw(**strategies: Any) -> Callable[[Callable[..., None]], None]:
        def run(check: Callable[..., None]) -> None:
            # On busy cores anything is slow.
            drawn = settings(max_examples=request.param, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
            drawn(given(**strategies)(check))()

        return run

    return draw
