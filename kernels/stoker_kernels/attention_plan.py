"""The order in which paged attention in plain torch works through a step, computed once for all layers.

Requests with one query row (decodes) are put in groups of similar length and computed in one call each; the others (prefill chunks) one by one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Int64s = npt.NDArray[np.int64]

# Measured on 2 shared cores, 32 decodes of 1000 tokens, ms a layer: 8.1 as one group of 24 MiB, 4.5 in groups of 8 MiB, 4.0 of 3 MiB (medians of the
# 4 quickest of 7 rounds; the slowest were twice that, in each size). 32 of 200 tokens: 0.6 to 0.7 in one group or two.
MAX_GROUP_BYTES = {"cpu": 8 << 20}
MAX_GROUP_BYTES_ELSEWHERE = 256 << 20
# A row is padded to at most twice its length, or to this.
SHORT_LENGTH = 128
# Rows of a chunk that attend in one call when it has a cached prefix: bounds the mask to this many rows.
MAX_PIECE_ROWS = 512


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Requests with one query row each. `rows` [R] are their rows in the step; None: all rows, in order.

    `slots` [R · longest] are the cache slots of every request's tokens, padded with the request's own first slot; `mask` [R, 1, 1, longest] is 0 where a
    slot counts, -inf where it is padding; None: nothing is padded.
    """

    num_rows: int
    rows: Tensor | None
    slots: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """One request with several query rows, `start:end` of the step, the last of the tokens in `slots` [length].

    `pieces` are (first row, last row + 1) of what attends in one call; with a cached prefix each needs a mask.
    """

    start: int
    end: int
    slots: Tensor
    pieces: tuple[tuple[int, int], ...]
    has_prefix: bool


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """`causal_mask` [rows, columns] is aligned at its lower right corner: `causal_mask[-q:, -k:]` is the mask of the last q of k positions."""

    decode_groups: tuple[DecodeGroup, ...]
    prefill_chunks: tuple[PrefillChunk, ...]
    causal_mask: Tensor | None


def plan_attention(query_start: Int64s, sequence_lengths: Int64s, block_table: npt.NDArray[np.integer], kv_cache: Tensor) -> AttentionPlan:
    """The plan of a step; arguments as for `stoker_kernels.plan_paged_attention`."""
    query_lengths = np.diff(query_start)
    decodes = np.flatnonzero(query_lengths == 1)
    block_size = kv_cache.shape[1]
    groups = tuple(
        _decode_group(requests, query_start, sequence_lengths, block_table, kv_cache) for requests in _group_by_length(decodes, sequence_lengths, kv_cache)
    )
    chunks = tuple(
        _prefill_chunk(int(query_start[request]), int(query_start[request + 1]), _slots(block_table[request : request + 1], int(length), block_size), kv_cache)
        for request, length in enumerate(sequence_lengths)
        if query_lengths[request] > 1
    )
    return AttentionPlan(groups, chunks, _causal_mask(chunks, kv_cache))


def _group_by_length(decodes: Int64s, sequence_lengths: Int64s, kv_cache: Tensor) -> list[Int64s]:
    """The decodes in groups of similar length, each group in batch order."""
    if not len(decodes):
        return []
    token_bytes = kv_cache[0, 0].numel() * kv_cache.itemsize
    max_tokens = MAX_GROUP_BYTES.get(kv_cache.device.type, MAX_GROUP_BYTES_ELSEWHERE) // token_bytes
    by_length = decodes[np.argsort(sequence_lengths[decodes], kind="stable")]
    groups, first = [], 0
    for index, request in enumerate(by_length):
        length = int(sequence_lengths[request])
        longest_padded = max(2 * int(sequence_lengths[by_length[first]]), SHORT_LENGTH)
        if index > first and (length > longest_padded or length * (index - first + 1) > max_tokens):
            groups.append(np.sort(by_length[first:index]))
            first = index
    groups.append(np.sort(by_length[first:]))
    return groups


def _decode_group(requests: Int64s, query_start: Int64s, sequence_lengths: Int64s, block_table: npt.NDArray[np.integer], kv_cache: Tensor) -> DecodeGroup:
    lengths = sequence_lengths[requests]
    longest = int(lengths.max())
    slots = _slots(block_table[requests], longest, kv_cache.shape[1])
    mask = None
    if int(lengths.min()) < longest:
        padding = np.arange(longest) >= lengths[:, None]
        # A slot outside the request may hold another's NaN, which no mask takes out of a sum: padding reads the request's own first token.
        slots = np.where(padding, slots[:, :1], slots)
        mask = torch.zeros(padding.shape, dtype=kv_cache.dtype).masked_fill_(torch.from_numpy(padding), -torch.inf)[:, None, None].to(kv_cache.device)
    every_row = len(requests) == int(query_start[-1])
    rows = None if every_row else torch.from_numpy(query_start[requests]).to(kv_cache.device)
    return DecodeGroup(len(requests), rows, torch.from_numpy(slots.reshape(-1)).to(kv_cache.device), mask)


def _prefill_chunk(start: int, end: int, slots: Int64s, kv_cache: Tensor) -> PrefillChunk:
    has_prefix = slots.size > end - start
    piece_rows = MAX_PIECE_ROWS if has_prefix else end - start
    pieces = tuple((first, min(first + piece_rows, end)) for first in range(start, end, piece_rows))
    return PrefillChunk(start, end, torch.from_numpy(slots.reshape(-1)).to(kv_cache.device), pieces, has_prefix)


def _causal_mask(chunks: tuple[PrefillChunk, ...], kv_cache: Tensor) -> Tensor | None:
    masked = [chunk for chunk in chunks if chunk.has_prefix]
    if not masked:
        return None
    rows = max(end - start for chunk in masked for start, end in chunk.pieces)
    columns = max(chunk.slots.numel() for chunk in masked)
    mask = torch.full((rows, columns), -torch.inf, dtype=kv_cache.dtype, device=kv_cache.device)
    return mask.triu_(columns - rows + 1)


def _slots(block_tables: npt.NDArray[np.integer], length: int, block_size: int) -> Int64s:
    """[R, length]: the cache slots of the first `length` positions of each block table."""
    num_blocks = -(-length // block_size)
    first_slots = block_tables[:, :num_blocks].astype(np.int64) * block_size
    return (first_slots[:, :, None] + np.arange(block_size)).reshape(len(block_tables), -1)[:, :length]
