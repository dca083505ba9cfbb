"""The C++ ops on tensors in bfloat16: checks of what C++ takes on trust, then one call each. Results are those of reference/ but for rounding."""

from ctypes import byref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker_kernels.cpu.library import AttentionBatch, AttentionShape, load_library
from stoker_kernels.cpu.memory import Arena
from stoker_kernels.cpu.packed_weight import PackedWeight, WeightFormat, pack

GROUP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class CpuAttentionPlan:
    """A step's requests as C sees them, and the arrays that it points into."""

    batch: AttentionBatch
    arrays: tuple[npt.NDArray[np.integer], ...]


class CpuOps:
    """The ops of one instruction set's library, with weights in one format, side by side in memory."""

    def __init__(self, instruction_set: str, weight_format: WeightFormat = WeightFormat.BFLOAT16) -> None:
        self.instruction_set = instruction_set
        self.weight_format = weight_format
        self.library = load_library(instruction_set)
        self._weights = Arena()

    def set_num_threads(self, number: int) -> None:
        """The threads that compute, the calling one among them; 1 until this is called."""
        self.library.stoker_set_num_threads(number)

    def kv_cache_shape(self, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, ...]:
        """[blocks, kv heads, groups of 16 tokens, keys or values, 16 · head_dim]: keys [head_dim / 2][16 tokens][2], values [8][head_dim][2 tokens]."""
        return (num_blocks, num_kv_heads, block_size // GROUP_TOKENS, 2, GROUP_TOKENS * head_dim)

    def pack(self, weight: Tensor, bias: Tensor | None = None, *, interleaved: bool = False) -> PackedWeight:
        """Lays out a weight [outputs, inputs]. interleaved: its first half is gate, its second up. Raises ValueError for an odd number of inputs."""
        return pack(self.library, _checked(weight.contiguous(), "weight"), bias, self.weight_format, self._weights, interleaved=interleaved)

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> "CpuLinear":
        """A linear layer with this weight, packed."""
        return CpuLinear(self, self.pack(weight, bias))

    def linear(self, x: Tensor, weight: PackedWeight) -> Tensor:
        """x [rows, inputs] → [rows, outputs]"""
        out = torch.empty(len(x), weight.outputs, dtype=torch.bfloat16)
        self.library.stoker_linear(*_rows(x, weight.inputs), byref(weight.matrix()), out.data_ptr())
        return out

    def linear_to_floats(self, x: Tensor, weight: PackedWeight, out: Tensor) -> Tensor:
        """The same in float32, not rounded, into out [≥ rows, outputs]; returns its rows."""
        self.library.stoker_linear_to_floats(*_rows(x, weight.inputs), byref(weight.matrix()), out.data_ptr())
        return out if out.shape[0] == x.shape[0] else out[: x.shape[0]]

    def linear_add(self, x: Tensor, weight: PackedWeight, residual: Tensor) -> None:
        """residual [rows, outputs] += the product."""
        self.library.stoker_linear_add(*_rows(x, weight.inputs), byref(weight.matrix()), _checked(residual, "residual").data_ptr())

    def linear_silu_and_mul(self, x: Tensor, weight: PackedWeight) -> Tensor:
        """silu(gate) · up of the product with an interleaved weight, [rows, outputs / 2]."""
        if not weight.interleaved:
            raise ValueError("the weight of gate and up must be interleaved")
        out = torch.empty(len(x), weight.outputs // 2, dtype=torch.bfloat16)
        self.library.stoker_linear_silu_and_mul(*_rows(x, weight.inputs), byref(weight.matrix()), weight.outputs // 2, out.data_ptr())
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        out = torch.empty(x.shape, dtype=torch.bfloat16)
        self.library.stoker_rms_norm(*_rows(x, x.shape[1]), weight.data_ptr(), x.shape[1], epsilon, out.data_ptr())
        return out

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        out = torch.empty(x.shape, dtype=torch.bfloat16)
        rows, size = x.shape
        x, residual = _checked(x, "x"), _checked(residual, "residual")
        self.library.stoker_add_rms_norm(x.data_ptr(), rows, residual.data_ptr(), weight.data_ptr(), size, epsilon, out.data_ptr())
        return out

    def silu_and_mul(self, x: Tensor) -> Tensor:
        size = x.shape[1] // 2
        out = torch.empty(len(x), size, dtype=torch.bfloat16)
        self.library.stoker_silu_and_mul(*_rows(x, 2 * size), size, out.data_ptr())
        return out

    def rotary_and_cache(self, qkv: Tensor, cos_sin: Tensor, slot_mapping: Tensor, kv_cache: Tensor) -> None:
        num_tokens, num_all_heads, head_dim = qkv.shape
        num_kv_heads = kv_cache.shape[1]
        shape = attention_shape(kv_cache, num_all_heads - 2 * num_kv_heads, 1.0)
        qkv, cos_sin = _checked(qkv, "qkv"), _checked(cos_sin, "cos_sin")
        if cos_sin.shape[0] != num_tokens or 2 * cos_sin.shape[2] > head_dim or slot_mapping.dtype != torch.int64 or len(slot_mapping) != num_tokens:
            raise ValueError(f"{num_tokens} tokens need as many angles of at most {head_dim} dimensions and int64 slots")
        self.library.stoker_rotate_and_cache(
            qkv.data_ptr(), num_tokens, byref(shape), cos_sin.data_ptr(), cos_sin.shape[2], slot_mapping.data_ptr(), kv_cache.data_ptr()
        )

    def plan_paged_attention(
        self, query_start: npt.NDArray[np.int64], sequence_lengths: npt.NDArray[np.int64], block_table: npt.NDArray[np.integer], kv_cache: Tensor
    ) -> CpuAttentionPlan:
        starts, lengths, table = np.ascontiguousarray(query_start), np.ascontiguousarray(sequence_lengths), np.ascontiguousarray(block_table, dtype=np.int32)
        batch = AttentionBatch(len(lengths), starts.ctypes.data, lengths.ctypes.data, table.ctypes.data, table.shape[1])
        return CpuAttentionPlan(batch, (starts, lengths, table))

    def paged_attention(
        self,
        query: Tensor,
        kv_cache: Tensor,
        plan: CpuAttentionPlan,
        scale: float,
        *,
        window: int | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """sinks: float32 [num_heads]."""
        num_tokens, num_heads, head_dim = query.shape
        out = torch.empty(num_tokens, num_heads, head_dim, dtype=torch.bfloat16)
        shape = attention_shape(kv_cache, num_heads, scale, soft_cap or 0.0, window or 0, sinks)
        if query.dtype != torch.bfloat16 or query.stride(2) != 1 or query.stride(1) != head_dim:
            raise ValueError(f"the heads of a query row must lie side by side in bfloat16, they are {query.dtype} with strides {query.stride()}")
        if sinks is not None and (sinks.dtype != torch.float32 or sinks.shape != (num_heads,) or not sinks.is_contiguous()):
            raise ValueError(f"sinks must be float32 [{num_heads}], they are {sinks.dtype} {list(sinks.shape)}")
        self.library.stoker_attend(query.data_ptr(), query.stride(0), byref(shape), byref(plan.batch), kv_cache.data_ptr(), out.data_ptr())
        return out


@dataclass(frozen=True, slots=True)
class CpuLinear:
    """x [rows, inputs] → [rows, outputs]"""

    ops: CpuOps
    weight: PackedWeight

    def __call__(self, x: Tensor) -> Tensor:
        return self.ops.linear(x, self.weight)


def attention_shape(kv_cache: Tensor, num_heads: int, scale: float, soft_cap: float = 0.0, window: int = 0, sinks: Tensor | None = None) -> AttentionShape:
    """The C view of a layer's attention. soft_cap, window: 0 is none; sinks: float32 [num_heads], which the caller keeps."""
    _, num_kv_heads, groups, _, size = _checked(kv_cache, "kv_cache").shape
    head_dim, block_size = size // GROUP_TOKENS, groups * GROUP_TOKENS
    return AttentionShape(num_heads, num_kv_heads, head_dim, block_size, scale, soft_cap, window, None if sinks is None else sinks.data_ptr())


def _rows(x: Tensor, size: int) -> tuple[int, int, int]:
    """Address, stride and number of the rows of x [rows, size]."""
    if x.dtype != torch.bfloat16 or x.shape[1] != size or x.stride(1) != 1 or x.stride(0) % 2:
        raise ValueError(f"rows of {size} bfloat16 are needed, there are {tuple(x.shape)} of {x.dtype} with strides {x.stride()}")
    return x.data_ptr(), x.stride(0), x.shape[0]


def _checked(x: Tensor, name: str) -> Tensor:
    if x.dtype != torch.bfloat16 or not x.is_contiguous():
        raise ValueError(f"{name} must be contiguous bfloat16, it is {x.dtype} with strides {x.stride()}")
    return x
