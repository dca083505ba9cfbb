"""InputBatch: the requests that the worker knows, kept between steps, and a step's flat arrays made from them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData
from stoker_engine.worker.growing_table import GrowingTable, Int64s

_INITIAL_ROWS = 16
_INITIAL_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step's batch of R requests and T tokens, request after request, on the CPU.

    rows: [R], each request's row in the InputBatch. query_start: [R + 1], from 0. sequence_lengths: [R], computed and scheduled tokens together.
    block_table: [R, blocks of the longest]. input_ids, positions, slot_mapping: [T]. sampling: indices into [R] of the requests that get a token.
    """

    request_ids: list[str]
    rows: Int64s
    query_start: Int64s
    sequence_lengths: Int64s
    block_table: npt.NDArray[np.int32]
    input_ids: Int64s
    positions: Int64s
    slot_mapping: Int64s
    sampling: Int64s


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
        self.version += 1

    def remove(self, request_id: str) -> None:
        """Forgets a request; one that is not known changes nothing."""
        row = self._rows.pop(request_id, None)
        if row is not None:
            self._free_rows.append(row)
            self.version += 1

    def update(self, cached: CachedRequestData) -> None:
        """Takes in what the scheduler says of known requests."""
        rows = [self._rows.get(request_id, -1) for request_id in cached.request_ids]
        for row, new_block_ids in zip(rows, cached.new_block_ids, strict=True):
            if new_block_ids and row >= 0:
                self._block_ids.extend_row(row, new_block_ids)
        index = np.array(rows, dtype=np.int64)
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
        num_blocks = -(-int(sequence_lengths.max()) // self._block_size)
        return StepInputs(
            request_ids=request_ids,
            rows=rows,
            query_start=query_start,
            sequence_lengths=sequence_lengths,
            block_table=self._block_ids.data[rows, :num_blocks],
            input_ids=self._token_ids.data[token_rows, positions].astype(np.int64),
            positions=positions,
            slot_mapping=self._block_ids.data[token_rows, blocks].astype(np.int64) * self._block_size + offsets,
            sampling=np.flatnonzero(sequence_lengths == self._token_ids.lengths[rows]),
        )

    def num_tokens(self, rows: Int64s) -> Int64s:
        """How many tokens the requests in these rows have: the index of each one's next token."""
        return self._token_ids.lengths[rows]

    def append_tokens(self, rows: Int64s, token_ids: Int64s) -> None:
        """A sampled token for each row."""
        self._token_ids.append(rows, token_ids)

    def _select(self, request_ids: list[str], num_scheduled_tokens: dict[str, int]) -> tuple[Int64s, Int64s]:
        """Rows and scheduled tokens of these requests."""
        rows = np.array([self._rows[request_id] for request_id in request_ids], dtype=np.int64)
        return rows, np.array([num_scheduled_tokens[request_id] for request_id in request_ids], dtype=np.int64)
