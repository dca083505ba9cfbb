"""Repetition, frequency and presence penalties at the tokens that each row has seen, without a pass over the vocabulary."""

import triton
import triton.language as tl
from torch import Tensor

from stoker_kernels.triton.launch import launch_config

PROGRAMS = 8
"""Programs that share a row's tokens, whose number only the device knows."""


@triton.jit
def _penalties_kernel(
    logits: tl.tensor,  # float32 [R, vocabulary]
    token_ids: tl.tensor,
    output_counts: tl.tensor,
    starts: tl.tensor,  # [R + 1]
    strengths: tl.tensor,  # float32 [R, 3]
    row_stride: tl.tensor,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    repetition, frequency, presence = tl.load(strengths + row * 3), tl.load(strengths + row * 3 + 1), tl.load(strengths + row * 3 + 2)
    end = tl.load(starts + row + 1)
    for start in range(tl.load(starts + row) + tl.program_id(1) * BLOCK, end, PROGRAMS * BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < end
        at = logits + row * row_stride + tl.load(token_ids + places, mask=inside, other=0)
        counts = tl.load(output_counts + places, mask=inside, other=0.0)
        values = tl.load(at, mask=inside, other=0.0)
        values = tl.where(values > 0, values / repetition, values * repetition)
        values = values - frequency * counts - tl.where(counts > 0, presence, 0.0)
        tl.store(at, values, mask=inside)


def apply_penalties(logits: Tensor, token_ids: Tensor, output_counts: Tensor, starts: Tensor, strengths: Tensor) -> None:
    """Changes logits, float32 [R, vocabulary], in place.

    Row r has seen token_ids[starts[r]:starts[r + 1]] (int32 or int64), no token twice, each output_counts (float32) times in its output.
    strengths: float32 [R, 3], repetition, frequency and presence.
    """
    config = launch_config("apply_penalties", "*", logits.device)
    grid = (len(logits), PROGRAMS)
    _penalties_kernel[grid](logits, token_ids, output_counts, starts, strengths, logits.stride(0), PROGRAMS=PROGRAMS, **config)
