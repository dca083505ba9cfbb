"""SteadyDecode: steps in which the same requests decode, one token each. Their arrays are made once and moved on in place."""

import numpy as np

from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.worker.growing_table import GrowingTable, Int64s
from stoker_engine.worker.step_inputs import StepInputs

SPARE_TOKENS = 256
"""So many steps go by until the block table is made anew, with more columns."""


class SteadyDecode:
    """Begins with a step in which each request had one token and got the next; `block_ids` has the blocks of every row."""

    def __init__(self, step: StepInputs, block_ids: GrowingTable, block_size: int) -> None:
        self._step = step
        self._block_ids = block_ids
        self._block_size = block_size
        self._num_steps_left = SPARE_TOKENS
        self._num_scheduled_tokens = dict.fromkeys(step.request_ids, 1)
        self._num_computed_tokens = step.sequence_lengths.tolist()
        number, num_columns = step.block_table.shape
        self._row_starts = np.arange(number, dtype=np.int64) * num_columns
        self._flat_table = step.block_table.reshape(-1)
        self._blocks: Int64s = np.empty(number, dtype=np.int64)
        self._num_blocks: Int64s = np.empty(number, dtype=np.int64)
        self._slot_blocks = np.empty(number, dtype=np.int32)
        self._is_missing = np.empty(number, dtype=np.bool_)

    def continues_in(self, scheduler_output: SchedulerOutput) -> bool:
        """Whether the next step is one more token for each of the same requests."""
        cached = scheduler_output.cached_requests
        return (
            self._num_steps_left > 0
            and scheduler_output.num_scheduled_tokens == self._num_scheduled_tokens
            and cached.request_ids == self._step.request_ids
            and cached.num_computed_tokens == self._num_computed_tokens
        )

    def advance(self, new_block_ids: list[list[int]]) -> StepInputs | None:
        """The next step; None where a request has no block for its token. The new blocks are in `block_ids` already."""
        step = self._step
        self._num_steps_left -= 1
        if any(new_block_ids):
            self._take_blocks(new_block_ids)
        np.add(step.positions, 1, out=step.positions)
        np.add(step.sequence_lengths, 1, out=step.sequence_lengths)
        self._num_computed_tokens = step.sequence_lengths.tolist()
        np.floor_divide(step.positions, self._block_size, out=self._blocks)
        np.take(self._block_ids.lengths, step.sampling_rows, out=self._num_blocks, mode="clip")
        if np.count_nonzero(np.greater_equal(self._blocks, self._num_blocks, out=self._is_missing)):
            return None
        np.add(self._blocks, self._row_starts, out=self._blocks)
        np.take(self._flat_table, self._blocks, out=self._slot_blocks, mode="clip")
        np.remainder(step.positions, self._block_size, out=step.slot_mapping)
        np.multiply(self._slot_blocks, self._block_size, out=self._blocks, dtype=np.int64)
        np.add(step.slot_mapping, self._blocks, out=step.slot_mapping)
        return step

    def _take_blocks(self, new_block_ids: list[list[int]]) -> None:
        num_columns = self._step.block_table.shape[1]
        for index, (row, added) in enumerate(zip(self._step.sampling_rows.tolist(), new_block_ids, strict=True)):
            if added:
                self._step.block_table[index] = self._block_ids.data[row, :num_columns]
