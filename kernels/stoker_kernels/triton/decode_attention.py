"""Attention of requests with one query row: every split of a request's keys by a program of its own, then their sums merged."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.attend import MIN_SIDE, add_sinks, attend, attention_class, normalize
from stoker_kernels.triton.attention_plan import AttentionOptions, TritonAttentionPlan
from stoker_kernels.triton.launch import launch_config, padded_size, product_dtype


@triton.jit(do_not_specialize=["table_stride", "num_splits"])
def _decode_kernel(
    partial: tl.tensor,  # [decodes, num_heads, splits, HEAD_DIM + 2]: a split's sum, its largest score, its total
    query: tl.tensor,  # [T, num_heads, HEAD_DIM]
    kv_cache: tl.tensor,  # [blocks, BLOCK_SIZE, 2, NUM_KV_HEADS, HEAD_DIM]
    decodes: tl.tensor,
    query_start: tl.tensor,
    sequence_lengths: tl.tensor,
    block_table: tl.tensor,
    kv_scale: tl.tensor,  # [2, NUM_KV_HEADS], or None
    scale: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    table_stride: tl.tensor,
    num_splits: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    PRODUCT: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    decode, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    request = tl.load(decodes + decode).to(tl.int64)
    length = tl.load(sequence_lengths + request)
    first_key, end_key = split * SPLIT, tl.minimum(split * SPLIT + SPLIT, length)
    if WINDOW > 0:
        first_key = tl.maximum(first_key, tl.maximum(length - WINDOW, 0) // TILE * TILE)
    if first_key < end_key:
        # The query heads of a key-value head are the rows of its tile.
        group, dims = tl.arange(0, ROWS), tl.arange(0, PADDED_DIM)
        heads, is_element = kv_head * GROUP + group, (group < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
        rows = query + tl.load(query_start + request).to(tl.int64) * token_stride + heads[:, None] * head_stride
        values = tl.load(rows + dims[None, :], mask=is_element, other=0.0).to(PRODUCT)
        positions, keys, block_ids = tl.where(group < GROUP, length - 1, -1), kv_cache + kv_head * HEAD_DIM, block_table + request * table_stride
        if kv_scale is not None:
            scale = scale * tl.load(kv_scale + kv_head)
        attended, largest, total = attend(
            *(values, positions, keys, block_ids, first_key, end_key, scale, SOFT_CAP, WINDOW),
            *(NUM_KV_HEADS * HEAD_DIM, HEAD_DIM, PADDED_DIM, BLOCK_SIZE, TILE, PRODUCT),
        )
        places = partial + ((decode * NUM_KV_HEADS * GROUP + heads) * num_splits + split) * (HEAD_DIM + 2)
        tl.store(places[:, None] + dims[None, :], attended, mask=is_element)
        tl.store(places + HEAD_DIM, largest, mask=group < GROUP)
        tl.store(places + HEAD_DIM + 1, total, mask=group < GROUP)


@triton.jit(do_not_specialize=["num_splits"])
def _merge_kernel(
    output: tl.tensor,  # [T, num_heads, HEAD_DIM]
    partial: tl.tensor,
    decodes: tl.tensor,
    query_start: tl.tensor,
    sequence_lengths: tl.tensor,
    sinks: tl.tensor,  # [num_heads], or None
    kv_scale: tl.tensor,  # [2, NUM_KV_HEADS], or None
    num_splits: tl.tensor,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    decode, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    request = tl.load(decodes + decode)
    length = tl.load(sequence_lengths + request)
    dims = tl.arange(0, PADDED_DIM)
    attended = tl.zeros([1, PADDED_DIM], dtype=tl.float32)
    total = tl.zeros([1], dtype=tl.float32)
    largest = total - float("inf")
    first_split = 0
    if WINDOW > 0:
        first_split = tl.maximum(length - WINDOW, 0) // SPLIT
    places = partial + (decode * NUM_KV_HEADS * GROUP + head) * num_splits * (HEAD_DIM + 2)
    for split in range(first_split, tl.cdiv(length, SPLIT)):
        place = places + split * (HEAD_DIM + 2)
        split_largest, split_total = tl.load(place + HEAD_DIM), tl.load(place + HEAD_DIM + 1)
        new_largest = tl.maximum(largest, split_largest)
        kept, split_kept = tl.exp(largest - new_largest), tl.exp(split_largest - new_largest)
        total = total * kept + split_total * split_kept
        attended = attended * kept[:, None] + tl.load(place + dims, mask=dims < HEAD_DIM, other=0.0)[None, :] * split_kept[:, None]
        largest = new_largest
    if sinks is not None:
        attended, total = add_sinks(attended, largest, total, tl.load(sinks + head + tl.arange(0, 1)).to(tl.float32))
    attended = normalize(attended, total)
    if kv_scale is not None:
        attended = attended * tl.load(kv_scale + NUM_KV_HEADS + head // GROUP)
    row = tl.load(query_start + request).to(tl.int64)
    at = output + (row * NUM_KV_HEADS * GROUP + head) * HEAD_DIM + dims[None, :]
    tl.store(at, attended.to(output.dtype.element_ty), mask=dims[None, :] < HEAD_DIM)


def attend_decodes(output: Tensor, query: Tensor, kv_cache: Tensor, plan: TritonAttentionPlan, scale: float, options: AttentionOptions) -> None:
    """Fills the rows of output [T, num_heads, D], contiguous, that belong to the plan's decodes."""
    _, block_size, _, num_kv_heads, head_dim = kv_cache.shape
    num_decodes, num_heads, padded_dim = len(plan.decodes), query.shape[1], padded_size(max(head_dim, MIN_SIDE))
    config = launch_config("decode_attention", attention_class(query.dtype, padded_dim), query.device)
    num_splits = max(1, triton.cdiv(plan.longest_decode, config["SPLIT"]))
    partial = torch.empty((num_decodes, num_heads, num_splits, head_dim + 2), dtype=torch.float32, device=query.device)
    steps = (plan.decodes, plan.query_start, plan.sequence_lengths)
    shape = {"GROUP": num_heads // num_kv_heads, "NUM_KV_HEADS": num_kv_heads, "HEAD_DIM": head_dim, "PADDED_DIM": padded_dim, "WINDOW": options.window}
    _decode_kernel[(num_decodes, num_kv_heads, num_splits)](
        *(partial, query, kv_cache, *steps, plan.block_table, options.kv_scale),
        *(scale, query.stride(0), query.stride(1), plan.block_table.stride(0), num_splits),
        **shape,
        ROWS=max(MIN_SIDE, padded_size(num_heads // num_kv_heads)),
        BLOCK_SIZE=block_size,
        SOFT_CAP=options.soft_cap,
        PRODUCT=product_dtype(query),
        **config,
    )
    merge_config = launch_config("merge_splits", padded_dim, query.device)
    _merge_kernel[(num_decodes, num_heads)](
        output, partial, *steps, options.sinks, options.kv_scale, num_splits, **shape, SPLIT=config["SPLIT"], **merge_config
    )
