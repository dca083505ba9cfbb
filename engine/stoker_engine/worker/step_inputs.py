"""StepInputs: one step's batch as flat arrays."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker_engine.worker.growing_table import Int64s


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step's batch of R requests and T tokens, request after request, on the CPU; S of the requests get a token.

    query_start: [R + 1], from 0. sequence_lengths: [R], computed and scheduled tokens together. block_table: [R, ≥ blocks of the longest].
    input_ids, positions, slot_mapping: [T].
    sampling_rows: [S], their rows in the InputBatch. next_positions: [S], the index in its request of the token that each gets.
    last_tokens: [S], where in [T] each one's last token is; None where every token is one.

    The arrays of steps in which the same requests decode are the same: they are moved on in place.
    """

    request_ids: list[str]
    query_start: Int64s
    sequence_lengths: Int64s
    block_table: npt.NDArray[np.int32]
    input_ids: Int64s
    positions: Int64s
    slot_mapping: Int64s
    sampling_ids: list[str]
    sampling_rows: Int64s
    next_positions: Int64s
    last_tokens: Int64s | None
