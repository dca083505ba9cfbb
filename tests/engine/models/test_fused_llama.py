"""A whole step in one call of C++ beside the same ops called one by one."""

import gc
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stoker_engine.layers.attention import KVCacheShape, build_attention_metadata
from stoker_engine.layers.rotary import RopeParameters
from stoker_engine.models.config import ModelShape
from stoker_engine.models.fused_llama import FusedLlama
from stoker_engine.models.llama import LlamaModel, llama_parameters
from stoker_engine.models.model import Model
from stoker_engine.models.weights import WeightPlacement, make_dummy_weights
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_kernels.cpu.library import available_instruction_sets
from stoker_kernels.dispatch import Ops, cpu_ops

CPU = torch.device("cpu")
MAX_POSITIONS = 200


def random_weights(shape: ModelShape, seed: int) -> dict[str, Tensor]:
    """Norms, biases and matrices that matter."""
    weights = make_dummy_weights(llama_parameters(shape), WeightPlacement(torch.bfloat16, CPU, lambda _: None), seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in weights.items():
        if weight.dim() == 1:
            weight.normal_(1.0 if "norm" in name else 0.0, 0.3, generator=generator)
        else:
            weight.mul_(50 * 2 / weight.shape[1] ** 0.5)
    return weights


def make_shape(*, heads: tuple[int, int] = (4, 2), head_dim: int = 16, hidden_size: int = 64, **fields: Any) -> ModelShape:
    values: dict[str, Any] = {"intermediate_size": 72, "num_layers": 2, "vocab_size": 101, "rms_norm_epsilon": 1e-5, "architecture": "LlamaForCausalLM"}
    rope = RopeParameters(rope_type="default", theta=10000.0, rotary_dim=head_dim)
    sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": head_dim, "hidden_size": hidden_size}
    return ModelShape(rope=rope, max_context=MAX_POSITIONS, **(values | sizes | fields))


@dataclass
class Runs:
    """One model's cache and two requests in it; `step` feeds each the next of its tokens."""

    model: Model
    ops: Ops
    shape: ModelShape
    block_size: int

    def __post_init__(self) -> None:
        cache_shape = KVCacheShape(self.shape.num_layers, self.block_size, self.shape.num_kv_heads, self.shape.head_dim)
        blocks_each = -(-MAX_POSITIONS // self.block_size)
        self.kv_caches = allocate_kv_cache(self.ops, cache_shape, 2 * blocks_each, torch.bfloat16, CPU)
        self.tables = np.random.default_rng(0).permutation(2 * blocks_each).reshape(2, blocks_each)
        self.computed = [0, 0]

    def step(self, counts: dict[int, int]) -> tuple[Tensor, Tensor]:
        """Hidden states and logits."""
        positions = [np.arange(self.computed[request], self.computed[request] + count) for request, count in counts.items()]
        slots = [self.tables[r][p // self.block_size] * self.block_size + p % self.block_size for r, p in zip(counts, positions, strict=True)]
        metadata = build_attention_metadata(
            self.ops,
            query_start=np.cumsum([0, *counts.values()]),
            sequence_lengths=[self.computed[request] + count for request, count in counts.items()],
            block_table=self.tables[list(counts)],
            slot_mapping=np.concatenate(slots),
            kv_cache=self.kv_caches[0],
        )
        for request, count in counts.items():
            self.computed[request] += count
        ids = torch.from_numpy(np.concatenate(positions) * 7 % self.shape.vocab_size)
        hidden = self.model.forward(ids, torch.from_numpy(np.concatenate(positions)), metadata, self.kv_caches)
        return hidden, self.model.compute_logits(hidden)


HERE = available_instruction_sets()


@pytest.fixture(params=[*((name, "none") for name in HERE), (HERE[0], "int8"), (HERE[0], "int8-w8a8")], ids="-".join)
def ops(request: pytest.FixtureRequest) -> Ops:
    ops = cpu_ops(*request.param)
    assert ops.cpu is not None
    ops.cpu.set_num_threads(2)
    return ops


def make_fused(shape: ModelShape, ops: Ops, seed: int = 0) -> FusedLlama:
    assert ops.cpu is not None
    return FusedLlama(shape, random_weights(shape, seed), ops.cpu, MAX_POSITIONS)


@pytest.mark.parametrize("max_examples", [8, pytest.param(340, marks=pytest.mark.stress)])
def test_a_step_in_one_call_has_the_bits_of_its_ops_one_by_one(ops: Ops, max_examples: int) -> None:
    @settings(max_examples=max_examples, deadline=None, derandomize=True, database=None)
    @given(
        sizes=st.fixed_dictionaries(
            {
                "heads": st.sampled_from([(1, 1), (4, 2), (9, 3), (3, 3), (5, 1), (13, 1)]),
                "head_dim": st.sampled_from([16, 32, 64, 80]),
                "hidden_size": st.sampled_from([32, 62, 64, 100]),
                "intermediate_size": st.sampled_from([16, 24, 48, 50, 94]),
                "vocab_size": st.sampled_from([32, 33, 50, 95]),
                "num_layers": st.integers(1, 3),
                **dict.fromkeys(("ties_embeddings", "has_qkv_bias", "has_output_bias", "has_mlp_bias"), st.booleans()),
            }
        ),
        steps=st.lists(st.dictionaries(st.integers(0, 1), st.integers(1, 30), min_size=1), min_size=1, max_size=6),
        block_size=st.sampled_from([16, 32, 48]),
        seed=st.integers(0, 100),
    )
    def check(sizes: dict[str, Any], steps: list[dict[int, int]], block_size: int, seed: int) -> None:
        shape = make_shape(**sizes)
        one_by_one = Runs(LlamaModel(shape, random_weights(shape, seed), ops), ops, shape, block_size)
        fused = Runs(make_fused(shape, ops, seed), ops, shape, block_size)
        for counts in steps:
            (expected, expected_logits), (hidden, logits) = one_by_one.step(counts), fused.step(counts)
            assert torch.equal(hidden, expected)
            assert torch.equal(logits.bfloat16().float(), expected_logits)
        assert all(map(torch.equal, fused.kv_caches, one_by_one.kv_caches))

    check()


@pytest.mark.parametrize("build", [make_fused, lambda shape, ops: LlamaModel(shape, random_weights(shape, 0), ops)], ids=["in one call", "one by one"])
def test_any_number_of_threads_and_any_chunks_give_the_same_bits(ops: Ops, build: Callable[[ModelShape, Ops], Model]) -> None:
    shape = make_shape(heads=(9, 3), head_dim=32, hidden_size=96, has_mlp_bias=True)
    assert ops.cpu is not None
    results = []
    for num_threads, sizes in itertools.product((1, 2, 3), ((150,), (1, 16, 7, 125, 1))):
        ops.cpu.set_num_threads(num_threads)
        runs = Runs(build(shape, ops), ops, shape, 16)
        hidden, logits = zip(*((*map(Tensor.clone, runs.step({0: size})),) for size in sizes), strict=True)
        results.append((torch.cat(hidden), torch.cat(logits)))
    for hidden, logits in results:
        assert torch.equal(hidden, results[0][0]) and torch.equal(logits, results[0][1])


def test_the_rows_of_more_logits_than_are_kept_are_the_same(ops: Ops) -> None:
    shape = make_shape()
    model, hidden = make_fused(shape, ops), torch.randn(300, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    together = model.compute_logits(hidden)
    assert torch.equal(torch.cat([model.compute_logits(part).clone() for part in hidden.split(70)]), together)


def test_a_model_keeps_no_kv_cache_that_its_owner_dropped(ops: Ops) -> None:
    shape = make_shape()
    runs = Runs(make_fused(shape, ops), ops, shape, 16)
    runs.step({0: 5})
    first = weakref.ref(runs.kv_caches[0])
    runs.kv_caches = [cache.clone() for cache in runs.kv_caches]
    gc.collect()
    assert first() is None
    runs.step({0: 5})


def test_a_dropped_model_returns_its_memory() -> None:
    ops = cpu_ops(HERE[0])
    shape = make_shape(hidden_size=512, intermediate_size=1024, num_layers=1)

    def use() -> int:
        """The resident bytes after a model of some 4 MB has come and gone."""
        Runs(make_fused(shape, ops), ops, shape, 16).step({0: 40})
        return psutil.Process().memory_info().rss

    for _ in range(5):
        before = use()
    after = [use() for _ in range(50)]
    assert min(after[-5:]) - before < 20_000_000


def test_a_context_beyond_what_the_cache_holds_takes_no_memory(ops: Ops) -> None:
    shape = make_shape()
    assert ops.cpu is not None
    usual, endless = (FusedLlama(shape, random_weights(shape, 0), ops.cpu, positions) for positions in (MAX_POSITIONS, 10**12))
    for expected, found in zip(Runs(usual, ops, shape, 16).step({0: 150}), Runs(endless, ops, shape, 16).step({0: 150}), strict=True):
        assert torch.equal(found, expected)


def test_a_larger_cache_than_the_last_has_room_for_longer_requests(ops: Ops) -> None:
    shape = make_shape()
    model = make_fused(shape, ops)
    expected = Runs(make_fused(shape, ops), ops, shape, 16).step({0: 180})
    small = Runs(model, ops, shape, 16)
    small.kv_caches = [cache[:3].clone() for cache in small.kv_caches]
    small.tables = np.arange(3).reshape(1, 3)
    small.step({0: 48})
    for before, after in zip(expected, Runs(model, ops, shape, 16).step({0: 180}), strict=True):
        assert torch.equal(after, before)
