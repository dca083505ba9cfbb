"""How many bf16 operations this machine does right now: the fastest of large matrix products, on all CPUs or on the GPU. Prefill is limited by it."""

from functools import cache
from time import perf_counter

import torch
from torch import Tensor

SHAPES = {"cpu": ((1024, 1024, 1024), (2048, 2048, 2048), (1024, 576, 3072)), "cuda": ((8192, 8192, 8192), (16384, 8192, 8192))}
"""Rows, inner dimension and columns: a CPU does best while the matrices fit its caches."""
NUM_PRODUCTS = 7


def bf16_peak(device: str = "cpu") -> float:
    """Operations per second, of the best of all products: 0.4 s on 2 cores."""
    return max(_rate(device, rows, inner, columns) for rows, inner, columns in SHAPES[device])


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _rate(device: str, rows: int, inner: int, columns: int) -> float:
    left, right = _matrices(device, rows, inner, columns)
    times = []
    for _ in range(1 + NUM_PRODUCTS):
        synchronize(device)
        start = perf_counter()
        torch.matmul(left, right.t())
        synchronize(device)
        times.append(perf_counter() - start)
    return 2 * rows * inner * columns / min(times[1:])


@cache
def _matrices(device: str, rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor]:
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    return left.to(device, torch.bfloat16), right.to(device, torch.bfloat16)
