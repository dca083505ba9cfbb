"""What kernels.py times: one line per op and size, each with the bytes it must move and the operations it must do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stoker_kernels import Ops

BLOCK_SIZE = 16
EPSILON = 1e-5
ITEM = 2
"""Bytes of a bfloat16."""
Call = Callable[[], object]


@dataclass(slots=True, frozen=True)
class Sizes:
    """Of the model whose ops are timed."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def query(self) -> int:
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        return self.kv_heads * self.head_dim


SIZES = {"cpu": Sizes(576, 1536, 9, 3, 64, 49152), "cuda": Sizes(4096, 14336, 32, 8, 128, 128256)}
"""SmolLM2-135M on a CPU, Llama 3 8B on a GPU."""


@dataclass(slots=True, frozen=True)
class Place:
    """Where tensors are made, and in whose layout."""

    ops: Ops
    device: str
    sizes: Sizes

    def random(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self.device, dtype=torch.bfloat16).uniform_(-1, 1)


class Build(Protocol):
    """Makes one set of arguments of an op and returns the call."""

    def __call__(self, place: Place) -> Call: ...


@dataclass(slots=True, frozen=True)
class Case:
    """`num_bytes` and `num_operations` are what no implementation can do without."""

    op: str
    size: str
    build: Build
    num_bytes: float
    num_operations: float

    @property
    def name(self) -> str:
        return f"{self.op} [{self.size}]"


def linear(rows: int, outputs: int, inputs: int) -> Case:
    def build(place: Place) -> Call:
        layer, x = place.ops.make_linear(place.random(outputs, inputs), None), place.random(rows, inputs)
        return lambda: layer(x)

    return Case("linear", f"{rows} × {inputs} → {outputs}", build, *_product(rows, outputs, inputs))


def linear_add(rows: int, outputs: int, inputs: int) -> Case:
    """The product added to the residual; torch in two calls."""

    def build(place: Place) -> Call:
        weight, x, residual = place.random(outputs, inputs), place.random(rows, inputs), place.random(rows, outputs)
        if (cpu := place.ops.cpu) is not None:
            packed = cpu.pack(weight)
            return lambda: cpu.linear_add(x, packed, residual)
        layer = place.ops.make_linear(weight, None)
        return lambda: residual.add_(layer(x))

    return Case("linear_add", f"{rows} × {inputs} → {outputs}", build, *_product(rows, outputs, inputs))


def linear_silu_and_mul(rows: int, outputs: int, inputs: int) -> Case:
    """Both halves of the product, activated; torch in three calls."""

    def build(place: Place) -> Call:
        weight, x = place.random(outputs, inputs), place.random(rows, inputs)
        if (cpu := place.ops.cpu) is not None:
            packed = cpu.pack(weight, interleaved=True)
            return lambda: cpu.linear_silu_and_mul(x, packed)
        layer = place.ops.make_linear(weight, None)
        return lambda: place.ops.silu_and_mul(layer(x))

    return Case("linear_silu_and_mul", f"{rows} × {inputs} → {outputs}", build, *_product(rows, outputs, inputs))


def rms_norm(rows: int, size: int) -> Case:
    def build(place: Place) -> Call:
        x, weight = place.random(rows, size), place.random(size)
        return lambda: place.ops.rms_norm(x, weight, EPSILON)

    return Case("rms_norm", f"{rows} × {size}", build, 2 * rows * size * ITEM, 0)


def fused_add_rms_norm(rows: int, size: int) -> Case:
    def build(place: Place) -> Call:
        x, residual, weight = place.random(rows, size), place.random(rows, size), place.random(size)
        return lambda: place.ops.fused_add_rms_norm(x, residual, weight, EPSILON)

    return Case("fused_add_rms_norm", f"{rows} × {size}", build, 4 * rows * size * ITEM, 0)


def silu_and_mul(rows: int, size: int) -> Case:
    def build(place: Place) -> Call:
        x = place.random(rows, 2 * size)
        return lambda: place.ops.silu_and_mul(x)

    return Case("silu_and_mul", f"{rows} × {size}", build, 3 * rows * size * ITEM, 0)


def rotary_and_cache(rows: int, sizes: Sizes) -> Case:
    def build(place: Place) -> Call:
        cache = place.random(*place.ops.kv_cache_shape(rows // BLOCK_SIZE + 1, BLOCK_SIZE, sizes.kv_heads, sizes.head_dim))
        qkv, cos_sin = place.random(rows, sizes.heads + 2 * sizes.kv_heads, sizes.head_dim), place.random(rows, 2, sizes.head_dim // 2)
        slots = torch.arange(rows, device=place.device)
        return lambda: place.ops.rotary_and_cache(qkv, cos_sin, slots, cache)

    num_values = 2 * (sizes.query + sizes.key) + 2 * sizes.key + sizes.head_dim
    return Case("rotary_and_cache", f"{rows} × {sizes.heads}+{sizes.kv_heads} heads of {sizes.head_dim}", build, rows * num_values * ITEM, 0)


def paged_attention(queries: tuple[int, ...], lengths: tuple[int, ...], sizes: Sizes, size: str) -> Case:
    """Request r has `queries[r]` rows, the last of its `lengths[r]` positions."""

    def build(place: Place) -> Call:
        starts = np.concatenate(([0], np.cumsum(queries))).astype(np.int64)
        blocks = [-(-length // BLOCK_SIZE) for length in lengths]
        table = np.zeros((len(lengths), max(blocks)), dtype=np.int32)
        ids = np.random.default_rng(0).permutation(sum(blocks)).astype(np.int32)
        for row, part in zip(table, np.split(ids, np.cumsum(blocks)[:-1]), strict=True):
            row[: len(part)] = part
        cache = place.random(*place.ops.kv_cache_shape(sum(blocks), BLOCK_SIZE, sizes.kv_heads, sizes.head_dim))
        plan = place.ops.plan_paged_attention(starts, np.array(lengths, dtype=np.int64), table, cache)
        query = place.random(sum(queries), sizes.heads, sizes.head_dim)
        return lambda: place.ops.paged_attention(query, cache, plan, sizes.head_dim**-0.5)

    seen = sum(rows * length - rows * (rows - 1) / 2 for rows, length in zip(queries, lengths, strict=True))
    num_bytes = (2 * sum(lengths) * sizes.key + 2 * sum(queries) * sizes.query) * ITEM
    return Case("paged_attention", size, build, num_bytes, 4 * seen * sizes.query)


def cases(device: str) -> Iterator[Case]:
    """The table: a new op or size is one line."""
    sizes = SIZES[device]
    for rows in (1, 8, 32, 1024):
        yield linear(rows, sizes.query + 2 * sizes.key, sizes.hidden)
        yield linear_add(rows, sizes.hidden, sizes.intermediate)
        yield linear_silu_and_mul(rows, 2 * sizes.intermediate, sizes.hidden)
    for rows in (1, 32):
        yield linear(rows, sizes.vocabulary, sizes.hidden)
    for rows in (1, 32, 1024):
        yield rms_norm(rows, sizes.hidden)
        yield fused_add_rms_norm(rows, sizes.hidden)
        yield silu_and_mul(rows, sizes.intermediate)
        yield rotary_and_cache(rows, sizes)
    for number, length in ((1, 200), (8, 200), (32, 200), (32, 1000)):
        yield paged_attention((1,) * number, (length,) * number, sizes, f"{number} decodes of {length}")
    yield paged_attention((1024,), (1024,), sizes, "prefill of 1024")
    yield paged_attention((256,), (1024,), sizes, "chunk of 256 at 768")
    yield paged_attention((*(1,) * 31, 256), (*range(100, 410, 10), 256), sizes, "31 decodes, prefill of 256")


def _product(rows: int, outputs: int, inputs: int) -> tuple[int, int]:
    return (outputs * inputs + rows * (inputs + outputs)) * ITEM, 2 * rows * outputs * inputs
