"""What attention kernels need to know of a step, computed once for all layers: device tensors that one transfer fills."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Integers = npt.NDArray[np.integer]

CHUNK_ROWS = 128
"""Query rows of a chunk's piece, a multiple of the rows of every tile: a kernel divides a piece by its own tiles."""

ALIGNMENT = 4
"""int32s in 16 bytes: a kernel is compiled once for pointers so aligned, and again for others."""


@dataclass(frozen=True, slots=True)
class TritonAttentionPlan:
    """int32 tensors on the device, all views of `buffer`: query_start [R + 1], sequence_lengths [R], block_table [R, blocks].

    decodes: the requests with one query row. chunk_requests and chunk_rows: of each piece of the others, its request and its first row in it.
    longest_decode: tokens, at least those of any decode; it gives the grid, not the work.
    """

    buffer: Tensor
    query_start: Tensor
    sequence_lengths: Tensor
    block_table: Tensor
    decodes: Tensor
    chunk_requests: Tensor
    chunk_rows: Tensor
    longest_decode: int


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What only some models have: window and soft_cap are 0 where there is none. sinks [num_heads]; kv_scale float32 [2, num_kv_heads]."""

    window: int
    soft_cap: float
    sinks: Tensor | None
    kv_scale: Tensor | None


def plan_attention(query_start: Integers, sequence_lengths: Integers, block_table: Integers, kv_cache: Tensor) -> TritonAttentionPlan:
    """The plan of a step, from arrays on the CPU: query_start [R + 1], sequence_lengths [R], block_table [R, blocks]; any layer's kv_cache.

    What lies past a request's own blocks in the block table is never looked at. A request may have no rows, or no tokens: its rows are then 0.
    """
    query_lengths = np.diff(query_start)
    decodes = np.flatnonzero(query_lengths == 1)
    chunked = np.flatnonzero(query_lengths > 1)
    num_pieces = -(-query_lengths[chunked] // CHUNK_ROWS)
    chunk_requests = np.repeat(chunked, num_pieces)
    first_pieces = np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    chunk_rows = (np.arange(len(chunk_requests)) - first_pieces) * CHUNK_ROWS
    parts = [query_start, sequence_lengths, block_table, decodes, chunk_requests, chunk_rows]
    places = np.cumsum([0, *(-(-part.size // ALIGNMENT) * ALIGNMENT for part in parts)]).tolist()
    array = np.zeros(places[-1], dtype=np.int32)
    for place, part in zip(places[:-1], parts, strict=True):
        array[place : place + part.size] = part.reshape(-1)
    buffer = _transfer(array, kv_cache.device)
    starts, lengths, table, *lists = (buffer[place : place + part.size].view(part.shape) for place, part in zip(places[:-1], parts, strict=True))
    return TritonAttentionPlan(buffer, starts, lengths, table, lists[0], lists[1], lists[2], int(sequence_lengths[decodes].max(initial=0)))


def _transfer(array: npt.NDArray[np.int32], device: torch.device) -> Tensor:
    """On the device, without waiting for it."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
