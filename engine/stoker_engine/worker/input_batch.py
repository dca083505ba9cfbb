"""InputBatch: the requests that the worker knows, kept between steps, and a step's flat arrays made from them."""

import numpy as np

from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.worker.growing_table import GrowingTable, Int64s
from stoker_engine.worker.steady_decode import SPARE_TOKENS, SteadyDecode
from stoker_engine.worker.step_inputs import StepInputs

_INITIAL_ROWS = 16
_INITIAL_TOKENS = 1024


class InputBatch:
    """A request keeps its row as long as the worker knows it. `version` changes whenever a row gets another request."""

    def __init__(self, block_size: int) -> None:
        self.version = 0
        self._block_size = block_size
        self._rows: dict[str, int] = {}
        self._free_rows: list[int] = []
        self._token_ids = GrowingTable(_INITIAL_ROWS, _INITIAL_TOKENS)
        self._block_ids = GrowingTable(_INITIAL_ROWS, _INITIAL_TOKENS // block_size)
        self._num_computed_tokens: Int64s = np.zeros(_INITIAL_ROWS, dtype=np.int64)
        self._steady: SteadyDecode | None = None

    def add(self, request: NewRequestData) -> None:
        """Takes a request in, in place of one with the same id."""
        self.remove(request.request_id)
        row = self._free_rows.pop() if self._free_rows else len(self._rows)
        self._rows[request.request_id] = row
        self._token_ids.set_row(row, request.token_ids)
        self._block_ids.set_row(row, request.block_ids)
        if row >= len(self._num_computed_tokens):
            self._num_computed_tokens = np.concatenate([self._num_computed_tokens, np.zeros_like(self._num_computed_tokens)])
        self._num_computed_tokens[row] = request.num_computed_tokens
        self._changed()

    def remove(self, request_id: str) -> None:
        """Forgets a request; one that is not known changes nothing."""
        row = self._rows.pop(request_id, None)
        if row is not None:
            self._free_rows.append(row)
            self._changed()

    def continue_step(self, scheduler_output: SchedulerOutput) -> StepInputs | None:
        """The next step where it is the last one over again, a token further; None where `update` and `make_step` must see to it."""
        cached, steady = scheduler_output.cached_requests, self._steady
        if steady is None or not steady.continues_in(scheduler_output):
            return None
        self._add_blocks(cached)
        step = steady.advance(cached.new_block_ids)
        if step is None:
            self._steady = None
            cached.new_block_ids = [[] for _ in cached.request_ids]  # they have been added
        return step

    def update(self, cached: CachedRequestData) -> None:
        """Takes in what the scheduler says of known requests."""
        self._add_blocks(cached)
        index = np.array([self._rows.get(request_id, -1) for request_id in cached.request_ids], dtype=np.int64)
        known = index >= 0
        self._num_computed_tokens[index[known]] = np.array(cached.num_computed_tokens, dtype=np.int64)[known]

    def find_faults(self, num_scheduled_tokens: dict[str, int]) -> dict[str, str]:
        """The requests that cannot be run as scheduled, and why."""
        faults = {request_id: "the worker does not know the request" for request_id in num_scheduled_tokens if request_id not in self._rows}
        request_ids = [request_id for request_id in num_scheduled_tokens if request_id not in faults] if faults else list(num_scheduled_tokens)
        rows, num_scheduled = self._select(request_ids, num_scheduled_tokens)
        ends = self._num_computed_tokens[rows] + num_scheduled
        no_tokens = (ends > self._token_ids.lengths[rows]) | (num_scheduled < 1)
        no_blocks = ends > self._block_ids.lengths[rows] * self._block_size
        for index in np.flatnonzero(no_tokens | no_blocks).tolist():
            what = "tokens" if no_tokens[index] else "KV cache slots"
            faults[request_ids[index]] = f"scheduled for {num_scheduled[index]} tokens, up to the {ends[index]}th, for which it has no {what}"
        return faults

    def make_step(self, num_scheduled_tokens: dict[str, int]) -> StepInputs:
        """The flat arrays of a step; every request is known and has the tokens and blocks."""
        request_ids = list(num_scheduled_tokens)
        rows, num_scheduled = self._select(request_ids, num_scheduled_tokens)
        computed = self._num_computed_tokens[rows]
        sequence_lengths = computed + num_scheduled
        query_start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(num_scheduled, out=query_start[1:])
        token_rows = np.repeat(rows, num_scheduled)
        positions = np.arange(len(token_rows)) + np.repeat(computed - query_start[:-1], num_scheduled)
        blocks, offsets = np.divmod(positions, self._block_size)
        longest = int(sequence_lengths.max()) + SPARE_TOKENS
        num_blocks = -(-longest // self._block_size)
        self._token_ids.reserve(0, longest + 1)
        self._block_ids.reserve(0, num_blocks)
        sampling = np.flatnonzero(sequence_lengths == self._token_ids.lengths[rows])
        is_decode = len(sampling) == len(rows) == len(positions)
        step = StepInputs(
            request_ids=request_ids,
            query_start=query_start,
            sequence_lengths=sequence_lengths,
            block_table=np.ascontiguousarray(self._block_ids.data[rows, :num_blocks]),
            input_ids=self._token_ids.data[token_rows, positions].astype(np.int64),
            positions=positions,
            slot_mapping=self._block_ids.data[token_rows, blocks].astype(np.int64) * self._block_size + offsets,
            sampling_ids=request_ids if is_decode else [request_ids[index] for index in sampling.tolist()],
            sampling_rows=rows[sampling],
            next_positions=sequence_lengths if is_decode else sequence_lengths[sampling],
            last_tokens=None if is_decode else query_start[sampling + 1] - 1,
        )
        self._steady = SteadyDecode(step, self._block_ids, self._block_size) if is_decode else None
        return step

    def append_tokens(self, step: StepInputs, token_ids: Int64s) -> None:
        """What the requests of a step sampled, before the next step."""
        self._token_ids.append(step.sampling_rows, step.next_positions, token_ids)
        if step.last_tokens is None:
            np.copyto(step.input_ids, token_ids)

    def _changed(self) -> None:
        self.version += 1
        self._steady = None

    def _add_blocks(self, cached: CachedRequestData) -> None:
        if not any(cached.new_block_ids):
            return
        for request_id, new_block_ids in zip(cached.request_ids, cached.new_block_ids, strict=True):
            row = self._rows.get(request_id)
            if new_block_ids and row is not None:
                self._block_ids.extend_row(row, new_block_ids)

    def _select(self, request_ids: list[str], num_scheduled_tokens: dict[str, int]) -> tuple[Int64s, Int64s]:
        """Rows and scheduled tokens of these requests."""
        rows = np.array([self._rows[request_id] for request_id in request_ids], dtype=np.int64)
        return rows, np.array([num_scheduled_tokens[request_id] for request_id in request_ids], dtype=np.int64)
