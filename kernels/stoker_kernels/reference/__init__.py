"""Every op in plain torch: the specification of each, and the oracle of the tests. Shapes are in ../README.md and ../triton/README.md."""

from stoker_kernels.reference.activation import gelu_and_mul, silu_and_mul
from stoker_kernels.reference.attention import paged_attention
from stoker_kernels.reference.cache import reshape_and_cache, rotary_and_cache
from stoker_kernels.reference.embedding import embedding, selected_logits
from stoker_kernels.reference.experts import combine_experts, grouped_matmul, route
from stoker_kernels.reference.norm import fused_add_rms_norm, rms_norm
from stoker_kernels.reference.quantized import int4_matmul, int8_matmul, pack_int4, quantize_int4, quantize_int8, unpack_int4
from stoker_kernels.reference.rotary import rotary_embedding
from stoker_kernels.reference.sampling import apply_penalties, exponential_noise, sample

__all__ = [
    "apply_penalties",
    "combine_experts",
    "embedding",
    "exponential_noise",
    "fused_add_rms_norm",
    "gelu_and_mul",
    "grouped_matmul",
    "int4_matmul",
    "int8_matmul",
    "pack_int4",
    "paged_attention",
    "quantize_int4",
    "quantize_int8",
    "reshape_and_cache",
    "rms_norm",
    "rotary_and_cache",
    "rotary_embedding",
    "route",
    "sample",
    "selected_logits",
    "silu_and_mul",
    "unpack_int4",
]
