"""How many bf16 operations this machine does right now: the fastest of large matrix products, torch's and ours. Prefill is limited by it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

import torch
from torch import Tensor

from stoker_kernels import Ops, choose_ops

SHAPES = {"cpu": ((1024, 1024, 1024), (2048, 2048, 2048), (1024, 576, 3072)), "cuda": ((8192, 8192, 8192), (16384, 8192, 8192))}
"""Rows, inner dimension and columns: a CPU does best while the matrices fit its caches."""
NUM_PRODUCTS = 4
Product = Callable[[Tensor], Tensor]

_thread = ThreadPoolExecutor(1)
"""Where products run: what a library does to its thread does not reach the programs that the main thread starts."""


def bf16_peak(device: str = "cpu") -> float:
    """Operations per second, of the best of all products: half a second on 2 cores."""
    return _thread.submit(lambda: max(_rate(device, shape) for shape in SHAPES[device])).result()


def model_ops(device: str, head_dim: int = 64) -> Ops:
    """The ops that a bf16 model gets on a device, on all of its CPUs."""
    ops = choose_ops(torch.device(device), torch.bfloat16, block_size=16, head_dim=head_dim)
    if ops.cpu is not None:
        ops.cpu.set_num_threads(torch.get_num_threads())
    return ops


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _rate(device: str, shape: tuple[int, int, int]) -> float:
    x, products = _prepared(device, shape)
    times = [_seconds(device, product, x) for product in products for _ in range(1 + NUM_PRODUCTS)]
    rows, inner, columns = shape
    return 2 * rows * inner * columns / min(times)


def _seconds(device: str, product: Product, x: Tensor) -> float:
    synchronize(device)
    start = perf_counter()
    product(x)
    synchronize(device)
    return perf_counter() - start


@cache
def _prepared(device: str, shape: tuple[int, int, int]) -> tuple[Tensor, tuple[Product, ...]]:
    rows, inner, columns = shape
    x, weight = (torch.randn(size, inner).to(device, torch.bfloat16) for size in (rows, columns))
    return x, (lambda left: torch.matmul(left, weight.t()), model_ops(device).make_linear(weight, None))
