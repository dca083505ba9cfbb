"""The order in which paged attention in plain torch works through a step, computed once for all layers.

Requests with one query row (decodes) are put in groups of similar length and computed in one call each; the others (prefill chunks) one by one.

On a CPU a row has the same bits whatever else is in the step and wherever its chunk begins and ends, in float32 and bfloat16: what a row's sums are made
of follows from its position alone. Measured with torch 2.13's scaled_dot_product_attention: its products (MKL) sum in an order of their own for the last
rows of a number that is no multiple of 4, and divide the keys, in blocks of 512, into parts of 192 where a block has 384 or more, in halves from 193 on.
"""

import sys
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
# Rows of a chunk that attend in one call under a mask: bounds the mask to this many rows.
MAX_PIECE_ROWS = 512
# Query rows are padded to a multiple of this, keys to one of the other, on a CPU.
ROW_MULTIPLE = 4
KEY_MULTIPLE = 32
KEY_BLOCK, KEY_PART = 512, 192


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Requests with one query row each. `rows` [R] are their rows in the step; None: all rows, in order.

    `slots` [R · longest] are the cache slots of every request's tokens, padded with the request's own first slot; `mask` [R, 1, 1, longest] is 0 where a
    slot counts, -inf where it is padding; None: nothing is padded, elsewhere than on a CPU.
    """

    num_rows: int
    rows: Tensor | None
    slots: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class PrefillPiece:
    """The rows `start:end` of the step and the keys of their request that they attend to in one call, the first `num_keys`, padding included.

    `mask` [rows, num_keys] is 0 where a row sees a key, -inf elsewhere; None: the last row is at the last key, and causal.
    """

    start: int
    end: int
    num_keys: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """One request with several query rows. `slots` are the cache slots of its tokens, padded with the first."""

    slots: Tensor
    pieces: tuple[PrefillPiece, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    decode_groups: tuple[DecodeGroup, ...]
    prefill_chunks: tuple[PrefillChunk, ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Rows `start:end` of a step, the first at `position` of its request, that attend in one call."""

    start: int
    end: int
    position: int


def plan_attention(query_start: Int64s, sequence_lengths: Int64s, block_table: npt.NDArray[np.integer], kv_cache: Tensor) -> AttentionPlan:
    """The plan of a step; arguments as for `stoker_kernels.plan_paged_attention`."""
    query_lengths = np.diff(query_start)
    decodes = np.flatnonzero(query_lengths == 1)
    groups = tuple(
        _decode_group(requests, query_start, sequence_lengths, block_table, kv_cache) for requests in _group_by_length(decodes, sequence_lengths, kv_cache)
    )
    chunks = _prefill_chunks(np.flatnonzero(query_lengths > 1), query_start, sequence_lengths, block_table, kv_cache)
    return AttentionPlan(groups, chunks)


def padded_keys(length: int, device_type: str) -> int:
    """The number of keys with which the last of `length` positions is computed, alone or in company."""
    if device_type != "cpu":
        return length
    before = (length - 1) // KEY_BLOCK * KEY_BLOCK
    padded = -(-length // KEY_MULTIPLE) * KEY_MULTIPLE
    return padded if length - before <= KEY_PART else max(before + 2 * KEY_PART, padded)


def longest_alike(length: int, device_type: str) -> int:
    """The longest length whose number of keys does for `length`, too."""
    if device_type != "cpu":
        return sys.maxsize
    before = (length - 1) // KEY_BLOCK * KEY_BLOCK
    return before + (KEY_PART if length - before <= KEY_PART else KEY_BLOCK)


def _group_by_length(decodes: Int64s, sequence_lengths: Int64s, kv_cache: Tensor) -> list[Int64s]:
    """The decodes in groups of similar length, each group in batch order."""
    if not len(decodes):
        return []
    token_bytes, device_type = kv_cache[0, 0].numel() * kv_cache.itemsize, kv_cache.device.type
    max_tokens = MAX_GROUP_BYTES.get(device_type, MAX_GROUP_BYTES_ELSEWHERE) // token_bytes
    by_length = decodes[np.argsort(sequence_lengths[decodes], kind="stable")]
    groups, first = [], 0
    for index, request in enumerate(by_length):
        length, shortest = int(sequence_lengths[request]), int(sequence_lengths[by_length[first]])
        num_keys = padded_keys(length, device_type)
        is_other = num_keys > max(2 * shortest, SHORT_LENGTH) or length > longest_alike(shortest, device_type)
        if index > first and (is_other or num_keys * (index - first + 1) > max_tokens):
            groups.append(np.sort(by_length[first:index]))
            first = index
    groups.append(np.sort(by_length[first:]))
    return groups


def _decode_group(requests: Int64s, query_start: Int64s, sequence_lengths: Int64s, block_table: npt.NDArray[np.integer], kv_cache: Tensor) -> DecodeGroup:
    lengths = sequence_lengths[requests]
    longest = int(lengths.max())
    num_keys = padded_keys(longest, kv_cache.device.type)
    slots = _padded(_slots(block_table[requests], longest, kv_cache.shape[1]), num_keys)
    mask = None
    if kv_cache.device.type == "cpu" or int(lengths.min()) < longest:
        padding = np.arange(num_keys) >= lengths[:, None]
        # A slot outside the request may hold another's NaN, which no mask takes out of a sum: padding reads the request's own first token.
        slots = np.where(padding, slots[:, :1], slots)
        mask = torch.zeros(padding.shape, dtype=kv_cache.dtype).masked_fill_(torch.from_numpy(padding), -torch.inf)[:, None, None].to(kv_cache.device)
    every_row = len(requests) == int(query_start[-1])
    rows = None if every_row else torch.from_numpy(query_start[requests]).to(kv_cache.device)
    return DecodeGroup(len(requests), rows, torch.from_numpy(slots.reshape(-1)).to(kv_cache.device), mask)


def _prefill_chunks(
    requests: Int64s, query_start: Int64s, sequence_lengths: Int64s, block_table: npt.NDArray[np.integer], kv_cache: Tensor
) -> tuple[PrefillChunk, ...]:
    device_type = kv_cache.device.type
    spans = {}
    for request in requests.tolist():
        spans[request] = _spans(int(query_start[request]), int(query_start[request + 1]), int(sequence_lengths[request]), device_type)
    all_spans = [span for of_request in spans.values() for span in of_request]
    last_position = max((span.position for span in all_spans), default=0)
    most_rows = max((span.end - span.start for span in all_spans), default=0)
    masks = _causal_mask(last_position, most_rows, kv_cache)
    chunks = []
    for request, of_request in spans.items():
        length = int(sequence_lengths[request])
        slots = _padded(_slots(block_table[request : request + 1], length, kv_cache.shape[1]), padded_keys(length, device_type))
        pieces = tuple(_piece(span, masks, last_position, device_type) for span in of_request)
        chunks.append(PrefillChunk(torch.from_numpy(slots.reshape(-1)).to(kv_cache.device), pieces))
    return tuple(chunks)


def _spans(start: int, end: int, length: int, device_type: str) -> list[_Span]:
    """A chunk's rows in spans that can be computed with the same keys; in one span where no mask is needed."""
    first = length - (end - start)
    if device_type != "cpu" and first == 0:
        return [_Span(start, end, 0)]
    spans, position = [], first
    while position < length:
        last = min(length, position + MAX_PIECE_ROWS, longest_alike(position + 1, device_type))
        spans.append(_Span(start + position - first, start + last - first, position))
        position = last
    return spans


def _piece(span: _Span, masks: Tensor, last_position: int, device_type: str) -> PrefillPiece:
    num_rows = span.end - span.start
    num_keys = padded_keys(span.position + num_rows, device_type)
    if device_type != "cpu" and span.position == 0:
        return PrefillPiece(span.start, span.end, num_keys, None)
    first_column = last_position - span.position
    return PrefillPiece(span.start, span.end, num_keys, masks[: padded_rows(num_rows, device_type), first_column : first_column + num_keys])


def padded_rows(num_rows: int, device_type: str) -> int:
    return -(-num_rows // ROW_MULTIPLE) * ROW_MULTIPLE if device_type == "cpu" else num_rows


def _causal_mask(last_position: int, most_rows: int, kv_cache: Tensor) -> Tensor:
    """Row i sees the columns up to `last_position` + i: from column `last_position` - p on it is the mask of rows from position p on."""
    rows = padded_rows(most_rows, kv_cache.device.type)
    columns = last_position + rows + 2 * KEY_PART
    mask = torch.full((rows, columns), -torch.inf, dtype=kv_cache.dtype, device=kv_cache.device)
    return mask.triu_(last_position + 1)


def _padded(slots: Int64s, num_keys: int) -> Int64s:
    """Rows of slots with their first one repeated at the end, up to num_keys."""
    return np.concatenate((slots, np.repeat(slots[:, :1], num_keys - slots.shape[1], axis=1)), axis=1)


def _slots(block_tables: npt.NDArray[np.integer], length: int, block_size: int) -> Int64s:
    """[R, length]: the cache slots of the first `length` positions of each block table."""
    num_blocks = -(-length // block_size)
    first_slots = block_tables[:, :num_blocks].astype(np.int64) * block_size
    return (first_slots[:, :, None] + np.arange(block_size)).reshape(len(block_tables), -1)[:, :length]
