"""Which implementation runs the ops: decided once, when a model is loaded, and logged."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_kernels import attention_plan, torch_ops
from stoker_kernels.cpu.library import UnusableLibraryError, find_instruction_set
from stoker_kernels.cpu.ops import CpuOps
from stoker_kernels.cpu.packed_weight import WeightFormat
from stoker_kernels.linear import Linear, make_linear

logger = logging.getLogger(__name__)

NOT_BUILT = "there are no C++ ops for this processor; install g++ and install stoker again, unless STOKER_CPU_INSTRUCTION_SET names a set that it lacks"

MAX_TRITON_HEAD_DIM = 256

Int64s = npt.NDArray[np.int64]
# Only the implementation that made a plan reads it.
Plan = Any
_WEIGHT_FORMATS = {"none": WeightFormat.BFLOAT16, "int8": WeightFormat.INT8, "int8-w8a8": WeightFormat.INT8_DOT}


class QuantizationError(ValueError):
    """The ops that a model would run on have no quantized weights."""


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of every op; README.md has the shapes. A KV cache and a plan belong to the implementation that made them.

    `cpu`: the C++ ops where these are they, for a model class that runs a whole step with them.
    """

    name: str
    kv_cache_shape: Callable[[int, int, int, int], tuple[int, ...]]
    make_linear: Callable[[Tensor, Tensor | None], Linear]
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    fused_add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    silu_and_mul: Callable[[Tensor], Tensor]
    rotary_and_cache: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    plan_paged_attention: Callable[[Int64s, Int64s, npt.NDArray[np.integer], Tensor], Plan]
    paged_attention: Callable[[Tensor, Tensor, Plan, float], Tensor]
    cpu: CpuOps | None = None


TORCH_OPS = Ops(
    name="torch",
    kv_cache_shape=torch_ops.kv_cache_shape,
    make_linear=make_linear,
    rms_norm=torch_ops.rms_norm,
    fused_add_rms_norm=torch_ops.fused_add_rms_norm,
    silu_and_mul=torch_ops.silu_and_mul,
    rotary_and_cache=torch_ops.rotary_and_cache,
    plan_paged_attention=attention_plan.plan_attention,
    paged_attention=torch_ops.paged_attention,
)


def cpu_ops(instruction_set: str, quantization: str = "none") -> Ops:
    """The C++ ops in the build for one instruction set, with linear layers whose weights are quantized in one of the ways of `choose_ops`."""
    cpu = CpuOps(instruction_set, _WEIGHT_FORMATS[quantization])
    return Ops(
        name=f"cpu ({instruction_set})",
        kv_cache_shape=cpu.kv_cache_shape,
        make_linear=cpu.make_linear,
        rms_norm=cpu.rms_norm,
        fused_add_rms_norm=cpu.fused_add_rms_norm,
        silu_and_mul=cpu.silu_and_mul,
        rotary_and_cache=cpu.rotary_and_cache,
        plan_paged_attention=cpu.plan_paged_attention,
        paged_attention=cpu.paged_attention,
        cpu=cpu,
    )


def triton_ops() -> Ops:
    """The Triton kernels, with torch's products between them. Triton is imported only here: it takes seconds, and a CPU has no use for it."""
    from stoker_kernels.triton import activation, norm, paged_attention, rotary

    return replace(
        TORCH_OPS,
        name="triton",
        rms_norm=norm.rms_norm,
        fused_add_rms_norm=norm.fused_add_rms_norm,
        silu_and_mul=activation.silu_and_mul,
        rotary_and_cache=rotary.rotary_and_cache,
        plan_paged_attention=paged_attention.plan_attention,
        paged_attention=paged_attention.paged_attention,
    )


def choose_ops(device: torch.device, dtype: torch.dtype, block_size: int, head_dim: int, quantization: str = "none", *, input_sizes: Iterable[int] = ()) -> Ops:
    """The fastest implementation of all ops for a model in `dtype` on `device`, whose linear layers have inputs of these sizes.

    quantization: none, int8 or int8-w8a8.

    Raises ValueError for a device type without any, InstructionSetError for a forced instruction set that is unknown, QuantizationError where the ops have
    no quantized weights.
    """
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"no ops for device type {device.type!r}; there are ops for cpu, cuda")
    unsuited = _why_not_cpu_ops(device, dtype, block_size, head_dim, input_sizes)
    found = _find_cpu_ops(quantization) if unsuited is None else unsuited
    if isinstance(found, Ops):
        logger.info("ops: %s, quantization: %s", found.name, quantization)
        return found
    if quantization != "none":
        raise QuantizationError(f"there are no ops for {quantization!r} here ({found})")
    if device.type == "cuda":
        return _choose_cuda_ops(head_dim)
    if unsuited is None:
        logger.warning("ops: torch, which is several times slower: %s", found)
    else:
        logger.info("ops: torch (%s)", unsuited)
    return TORCH_OPS


def _find_cpu_ops(quantization: str) -> Ops | str:
    """The C++ ops for this processor, or why there are none that can be used."""
    instruction_set = find_instruction_set()
    if instruction_set is None:
        return NOT_BUILT
    try:
        return cpu_ops(instruction_set, quantization)
    except UnusableLibraryError as error:
        return f"{error}; install stoker again"


def _choose_cuda_ops(head_dim: int) -> Ops:
    if find_spec("triton") is None:
        logger.warning("ops: torch, which is slower: Triton is not installed (torch for CUDA brings it)")
        return TORCH_OPS
    if head_dim > MAX_TRITON_HEAD_DIM:
        logger.warning("ops: torch, which is slower: the Triton ops are for heads of at most %d dimensions, they have %d", MAX_TRITON_HEAD_DIM, head_dim)
        return TORCH_OPS
    logger.warning("ops: triton, which has been checked in an interpreter and not on a GPU yet")
    return triton_ops()


def _why_not_cpu_ops(device: torch.device, dtype: torch.dtype, block_size: int, head_dim: int, input_sizes: Iterable[int]) -> str | None:
    if device.type != "cpu":
        return f"the C++ ops are for CPUs, the device is {device.type}"
    if dtype != torch.bfloat16:
        return f"the C++ ops compute in bfloat16, the model is {str(dtype).removeprefix('torch.')}"
    if block_size % 16:
        return f"the C++ ops need a block size in multiples of 16, it is {block_size}"
    if head_dim % 16:
        return f"the C++ ops need heads in multiples of 16, they have {head_dim} dimensions"
    odd = next((size for size in input_sizes if size % 2), None)
    if odd is not None:
        return f"the C++ ops take the inputs of a linear layer in pairs, one has {odd}"
    return None
