"""Compiles every kernel for an NVIDIA architecture (80, 90, …) without a GPU, by launches on tensors without memory; one JSON line for each launch.

python compile_kernels.py 90              every kernel, in several shapes
python compile_kernels.py 90 steps        those of steps of one model with other numbers of requests and lengths
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from stoker_kernels.triton import activation, cache, embedding, experts, norm, penalties, quantized, rotary, routing, sampling
from stoker_kernels.triton.paged_attention import paged_attention, plan_attention

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
FIRST_WITH_FP8 = 89
# Of temperatures, top_k, top_p, min_p and keys.
SAMPLING_DTYPES = (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64)


class Target:
    """The driver of a GPU that is not there."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._architecture, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


@contextmanager
def compiled_not_launched() -> Iterator[None]:
    launch = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        report(self.__name__, launch(self, *args, grid=grid, warmup=True, **kwargs))

    with mock.patch.object(JITFunction, "run", run):
        yield


def report(name: str, kernel: Any) -> None:
    ptx = kernel.asm["ptx"]
    facts = {
        "kernel": name,
        "stack_bytes": stack_bytes(kernel.asm["cubin"]),
        "shared_bytes": kernel.metadata.shared,
        "has_tensor_cores": "mma" in ptx,
        "hash": kernel.hash,
    }
    sys.stdout.write(json.dumps(facts) + "\n")


def stack_bytes(cubin: bytes) -> int:
    """What a thread keeps in memory for want of registers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return max(int(word.removeprefix("STACK:")) for word in usage.split() if word.startswith("STACK:"))


def empty(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def launch_row_ops(dtype: torch.dtype) -> None:
    for size in (576, 4096):
        norm.rms_norm(empty(4, size, dtype=dtype), empty(size, dtype=dtype), 1e-5)
        norm.fused_add_rms_norm(empty(4, size, dtype=dtype), empty(4, size, dtype=dtype), empty(size, dtype=dtype), 1e-5)
    activation.silu_and_mul(empty(4, 3072, dtype=dtype))
    activation.gelu_and_mul(empty(4, 3072, dtype=dtype))
    embedding.embedding(empty(4, dtype=torch.int64), empty(1000, 576, dtype=dtype))
    experts.combine_experts(empty(16, 576, dtype=dtype), empty(4, 4, dtype=torch.float32))


def launch_cache_ops(head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype) -> None:
    scale = empty(2, 3, dtype=torch.float32) if cache_dtype == FP8 else None
    kv_cache, slots, cos_sin = empty(9, 16, 2, 3, head_dim, dtype=cache_dtype), empty(4, dtype=torch.int64), empty(4, 2, 32, dtype=dtype)
    rotary.rotary_embedding(empty(4, 9, head_dim, dtype=dtype), cos_sin)
    rotary.rotary_and_cache(empty(4, 15, head_dim, dtype=dtype), cos_sin, slots, kv_cache, scale)
    cache.reshape_and_cache(empty(4, 2, 3, head_dim, dtype=dtype), kv_cache, slots, scale)


def launch_attention(head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype, **options: Any) -> None:
    kv_cache = empty(9, 16, 2, 3, head_dim, dtype=cache_dtype)
    if cache_dtype == FP8:
        options["kv_scale"] = empty(2, 3, dtype=torch.float32)
    plan = plan_attention(np.array([0, 1, 5]), np.array([1000, 9]), np.zeros((2, 70), dtype=np.int32), kv_cache)
    paged_attention(empty(5, 9, head_dim, dtype=dtype), kv_cache, plan, 0.1, **options)


def launch_products(num_rows: int, dtype: torch.dtype) -> None:
    x, scales, zeros = empty(num_rows, 4096, dtype=dtype), empty(512, dtype=torch.float32), empty(512, 128, dtype=torch.uint8)
    embedding.selected_logits(empty(70, 576, dtype=dtype), empty(num_rows, dtype=torch.int64), empty(1000, 576, dtype=dtype))
    quantized.int8_matmul(x, empty(512, 4096, dtype=torch.int8), scales)
    quantized.int4_matmul(x, empty(512, 2048, dtype=torch.uint8), empty(512, 32, dtype=torch.float32))
    quantized.int4_matmul(x, empty(512, 2048, dtype=torch.uint8), empty(512, 128, dtype=torch.float32), zeros)
    order = routing.ExpertOrder(empty(60 * num_rows, dtype=torch.int64), empty(61, dtype=torch.int64))
    experts.grouped_matmul(empty(15 * num_rows, 576, dtype=dtype), empty(60, 512, 576, dtype=dtype), order)


def launch_choices() -> None:
    """The ops that choose tokens or experts."""
    logits = empty(4, 49152, dtype=torch.float32)
    sampling.sample(logits, *(empty(4, dtype=dtype) for dtype in SAMPLING_DTYPES))
    penalties.apply_penalties(logits, empty(4, dtype=torch.int64), empty(4, dtype=torch.float32), empty(5, dtype=torch.int32), empty(4, 3, dtype=torch.float32))
    for num_experts, num_chosen in ((60, 4), (128, 8)):
        routing.route(empty(4, num_experts), num_chosen, renormalize=num_chosen == 8)


def launch_steps() -> None:
    kv_cache, weight, scales = empty(9, 16, 2, 3, 64), empty(512, 4096, dtype=torch.int8), empty(512, dtype=torch.float32)
    for num_requests, num_blocks, length in ((1, 1, 5), (2, 7, 100), (3, 16, 200), (5, 70, 1000), (16, 80, 600)):
        lengths, block_table = np.full(num_requests, length), np.zeros((num_requests, num_blocks), dtype=np.int32)
        for num_rows in (1, 4):
            plan = plan_attention(num_rows * np.arange(num_requests + 1), lengths + num_rows, block_table, kv_cache)
            paged_attention(empty(num_requests * num_rows, 9, 64), kv_cache, plan, 0.1)
        quantized.int8_matmul(empty(num_requests, 4096), weight, scales)
        sampling.sample(empty(num_requests, 1000, dtype=torch.float32), *(empty(num_requests, dtype=dtype) for dtype in SAMPLING_DTYPES))


def launch_everything(architecture: int) -> None:
    for dtype in (BF16, torch.float16, torch.float32):
        launch_row_ops(dtype)
        launch_cache_ops(64, dtype, dtype)
    for head_dim, dtype in ((64, BF16), (80, BF16), (96, torch.float16), (128, BF16), (256, BF16), (64, torch.float32), (256, torch.float32)):
        launch_attention(head_dim, dtype, dtype)
    launch_attention(64, BF16, BF16, window=100, soft_cap=30.0, sinks=empty(9))
    if architecture >= FIRST_WITH_FP8:
        launch_cache_ops(80, BF16, FP8)
        launch_attention(128, BF16, FP8)
    for num_rows in (4, 64):
        launch_products(num_rows, BF16)
    launch_choices()


def main(architecture: int, *what: str) -> None:
    driver.set_active(Target(architecture))
    with compiled_not_launched():
        if what == ("steps",):
            launch_steps()
        else:
            launch_everything(architecture)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
