"""Attention of requests with several query rows: tiles of rows, each over all keys that its last row sees."""

import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.attend import MIN_SIDE, add_sinks, attend, attention_class, normalize
from stoker_kernels.triton.attention_plan import CHUNK_ROWS, AttentionOptions, TritonAttentionPlan
from stoker_kernels.triton.launch import launch_config, padded_size, product_dtype


@triton.jit(do_not_specialize=["table_stride"])
def _prefill_kernel(
    output: tl.tensor,  # [T, num_heads, HEAD_DIM]
    query: tl.tensor,  # [T, num_heads, HEAD_DIM]
    kv_cache: tl.tensor,  # [blocks, BLOCK_SIZE, 2, NUM_KV_HEADS, HEAD_DIM]
    chunk_requests: tl.tensor,
    chunk_rows: tl.tensor,
    query_start: tl.tensor,
    sequence_lengths: tl.tensor,
    block_table: tl.tensor,
    sinks: tl.tensor,  # [num_heads], or None
    kv_scale: tl.tensor,  # [2, NUM_KV_HEADS], or None
    scale: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    table_stride: tl.tensor,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    TILES: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    piece, kv_head = tl.program_id(0) // TILES, tl.program_id(1)
    request = tl.load(chunk_requests + piece).to(tl.int64)
    first_row = tl.load(chunk_rows + piece) + tl.program_id(0) % TILES * (ROWS // PADDED_GROUP)
    start = tl.load(query_start + request)
    num_rows = tl.load(query_start + request + 1) - start
    if first_row < num_rows:
        # The query heads of a key-value head are rows of its tile.
        rows, heads, dims = first_row + tl.arange(0, ROWS) // PADDED_GROUP, kv_head * GROUP + tl.arange(0, ROWS) % PADDED_GROUP, tl.arange(0, PADDED_DIM)
        is_row = (rows < num_rows) & (tl.arange(0, ROWS) % PADDED_GROUP < GROUP)
        is_element, tokens = is_row[:, None] & (dims < HEAD_DIM)[None, :], (start + rows).to(tl.int64)
        at = query + tokens[:, None] * token_stride + heads[:, None] * head_stride + dims[None, :]
        values = tl.load(at, mask=is_element, other=0.0).to(PRODUCT)
        num_before = tl.load(sequence_lengths + request) - num_rows
        first_key, end_key = 0, num_before + tl.minimum(first_row + ROWS // PADDED_GROUP, num_rows)
        if WINDOW > 0:
            first_key = tl.maximum(num_before + first_row + 1 - WINDOW, 0) // TILE * TILE
        positions, keys, block_ids = tl.where(is_row, num_before + rows, -1), kv_cache + kv_head * HEAD_DIM, block_table + request * table_stride
        if kv_scale is not None:
            scale = scale * tl.load(kv_scale + kv_head)
        attended, largest, total = attend(
            *(values, positions, keys, block_ids, first_key, end_key, scale, SOFT_CAP, WINDOW),
            *(NUM_KV_HEADS * HEAD_DIM, HEAD_DIM, PADDED_DIM, BLOCK_SIZE, TILE, PRODUCT),
        )
        if sinks is not None:
            attended, total = add_sinks(attended, largest, total, tl.load(sinks + heads, mask=is_row, other=0.0).to(tl.float32))
        attended = normalize(attended, total)
        if kv_scale is not None:
            attended = attended * tl.load(kv_scale + NUM_KV_HEADS + kv_head)
        to = output + (tokens[:, None] * NUM_KV_HEADS * GROUP + heads[:, None]) * HEAD_DIM + dims[None, :]
        tl.store(to, attended.to(output.dtype.element_ty), mask=is_element)


def attend_chunks(output: Tensor, query: Tensor, kv_cache: Tensor, plan: TritonAttentionPlan, scale: float, options: AttentionOptions) -> None:
    """Fills the rows of output [T, num_heads, D], contiguous, that belong to the plan's chunks."""
    _, block_size, _, num_kv_heads, head_dim = kv_cache.shape
    group, padded_dim = query.shape[1] // num_kv_heads, padded_size(max(head_dim, MIN_SIDE))
    padded_group = padded_size(group)
    config = dict(launch_config("prefill_attention", attention_class(query.dtype, padded_dim), query.device))
    config["ROWS"] = max(config["ROWS"], padded_group)
    tiles = triton.cdiv(CHUNK_ROWS, config["ROWS"] // padded_group)
    _prefill_kernel[(len(plan.chunk_requests) * tiles, num_kv_heads)](
        *(
            output,
            query,
            kv_cache,
            plan.chunk_requests,
            plan.chunk_rows,
            plan.query_start,
            plan.sequence_lengths,
            plan.block_table,
            options.sinks,
            options.kv_scale,
        ),
        *(scale, query.stride(0), query.stride(1), plan.block_table.stride(0)),
        GROUP=group,
        PADDED_GROUP=padded_group,
        TILES=tiles,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded_dim,
        BLOCK_SIZE=block_size,
        SOFT_CAP=options.soft_cap,
        WINDOW=options.window,
        PRODUCT=product_dtype(query),
        **config,
    )
