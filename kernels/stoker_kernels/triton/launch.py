"""Block sizes, warps and stages of every kernel: launch_table.json, by device name, then kernel, then class of shape; `default` and `*` stand for the rest."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources

import torch
import triton
import triton.language as tl
from torch import Tensor

FUSED_MULTIPLY_ADD = {"enable_fp_fusion": True}
"""Triton's default is about to change: say it."""

LaunchConfig = Mapping[str, int]
LaunchTable = dict[str, dict[str, dict[str, dict[str, int]]]]


def launch_config(kernel: str, shape_class: int | str, device: torch.device) -> LaunchConfig:
    """The keyword arguments of a launch that are tuned and don't change results but for the order of sums."""
    table = launch_table()
    by_class = table["default"][kernel] | table.get(device_name(device), {}).get(kernel, {})
    return FUSED_MULTIPLY_ADD | by_class.get(str(shape_class), by_class["*"])


@cache
def launch_table() -> LaunchTable:
    table: LaunchTable = json.loads(resources.files(__package__).joinpath("launch_table.json").read_text(encoding="utf-8"))
    return table


@contextmanager
def launched_with(kernel: str, shape_class: int | str, config: LaunchConfig, device: torch.device) -> Iterator[None]:
    """Within, launches of the kernel for this class of shapes on this kind of device have this configuration."""
    by_class = launch_table().setdefault(device_name(device), {}).setdefault(kernel, {})
    before = by_class.get(str(shape_class))
    by_class[str(shape_class)] = dict(config)
    try:
        yield
    finally:
        del by_class[str(shape_class)]
        if before is not None:
            by_class[str(shape_class)] = before


@cache
def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def padded_size(size: int) -> int:
    """The power of two that a block of this many has."""
    return int(triton.next_power_of_2(size))


def product_dtype(x: Tensor) -> tl.dtype:
    """The dtype in which a kernel multiplies matrices that hold x's dtype.

    float32 on a CPU, where only the interpreter runs kernels: it keeps a bfloat16 as its 16 bits, and would multiply those.
    """
    if x.device.type == "cpu":
        return tl.float32
    return {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}[x.dtype]
