from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from stoker_engine.layers.attention import build_attention_metadata
from stoker_engine.layers.rotary import RopeParameters
from stoker_engine.models.config import ModelShape
from stoker_engine.models.llama import LlamaModel, llama_parameters
from stoker_kernels import Ops
from stoker_kernels.dispatch import TORCH_OPS, triton_ops

SHAPE = ModelShape(
    architecture="LlamaForCausalLM",
    vocab_size=50,
    hidden_size=48,
    intermediate_size=64,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_epsilon=1e-5,
    rope=RopeParameters(rope_type="default", theta=10000.0, rotary_dim=8),
    max_context=100,
)


def run_steps(ops: Ops, dtype: torch.dtype, randn: Callable[..., Tensor], device: str) -> Tensor:
    """The logits of two steps: prompts of 7 and 3 tokens, then a decode of the first beside a chunk of 20 of another."""
    weights: dict[str, Tensor] = {}
    for seed, (name, parameter) in enumerate(sorted(llama_parameters(SHAPE).items())):
        part = 0.3 * randn(seed, *parameter.shape, dtype=dtype) + (1 if name.endswith("norm.weight") else 0)
        weights[parameter.target] = torch.cat((weights[parameter.target], part)) if parameter.target in weights else part
    model = LlamaModel(SHAPE, weights, ops)
    kv_caches = [torch.zeros(ops.kv_cache_shape(8, 16, SHAPE.num_kv_heads, SHAPE.head_dim), dtype=dtype, device=device) for _ in range(SHAPE.num_layers)]
    logits = []
    for chunks in ([(0, 0, 7), (1, 0, 3)], [(0, 7, 1), (2, 0, 20)]):
        block_table = np.array([[2 * request + 1, 2 * request] for request, _, _ in chunks], dtype=np.int32)
        slots = [int(block_table[row, p // 16]) * 16 + p % 16 for row, (_, before, count) in enumerate(chunks) for p in range(before, before + count)]
        positions = torch.tensor([p for _, before, count in chunks for p in range(before, before + count)], device=device)
        metadata = build_attention_metadata(
            ops,
            query_start=np.cumsum([0, *(count for _, _, count in chunks)]),
            sequence_lengths=[before + count for _, before, count in chunks],
            block_table=block_table,
            slot_mapping=slots,
            kv_cache=kv_caches[0],
        )
        logits.append(model.compute_logits(model.forward((positions * 7 + 3) % SHAPE.vocab_size, positions, metadata, kv_caches)))
    return torch.cat(logits)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.15)], ids=["float32", "bfloat16"])
def test_a_model_on_these_ops_gives_the_logits_it_gives_on_torchs(dtype: torch.dtype, tolerance: float, randn: Callable[..., Tensor], device: str) -> None:
    expected = run_steps(TORCH_OPS, dtype, randn, device)
    assert expected.std() > 0.5
    torch.testing.assert_close(run_steps(triton_ops(), dtype, randn, device), expected, rtol=tolerance, atol=tolerance)
