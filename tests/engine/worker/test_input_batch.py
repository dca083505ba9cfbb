"""Steps that move the last one's arrays on are the steps that would be made anew."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.input_batch import InputBatch
from stoker_engine.worker.steady_decode import SPARE_TOKENS
from stoker_engine.worker.step_inputs import StepInputs

BLOCK_SIZE = 4


@dataclass
class Twins:
    """Two batches that are told the same; only one of them may move a step on. It counts how often it did."""

    moving: InputBatch = field(default_factory=lambda: InputBatch(BLOCK_SIZE))
    made_anew: InputBatch = field(default_factory=lambda: InputBatch(BLOCK_SIZE))
    num_moved: int = 0
    lengths: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    num_blocks: dict[str, int] = field(default_factory=dict)
    next_block: int = 1

    def add(self, request_id: str, num_tokens: int) -> None:
        self.lengths[request_id], self.computed[request_id], self.num_blocks[request_id] = num_tokens, 0, 0
        for batch in (self.moving, self.made_anew):
            batch.add(NewRequestData(request_id, list(range(num_tokens)), num_tokens, SamplingParams(), [], [], [], 0))

    def remove(self, request_id: str) -> None:
        del self.lengths[request_id]
        for batch in (self.moving, self.made_anew):
            batch.remove(request_id)

    def output(self, scheduled: dict[str, int]) -> SchedulerOutput:
        cached = CachedRequestData(list(scheduled), [], [self.computed[request_id] for request_id in scheduled])
        for request_id, number in scheduled.items():
            needed = -(-(self.computed[request_id] + number) // BLOCK_SIZE) - self.num_blocks[request_id]
            cached.new_block_ids.append(list(range(self.next_block, self.next_block + needed)))
            self.next_block += needed
            self.num_blocks[request_id] += needed
            self.computed[request_id] += number
        return SchedulerOutput([], cached, scheduled, sum(scheduled.values()), [], [])

    def step(self, scheduled: dict[str, int]) -> None:
        """Every request samples when all of its tokens are computed."""
        scheduler_output = self.output(scheduled)
        step = self.moving.continue_step(scheduler_output)
        self.num_moved += step is not None
        if step is None:
            self.moving.update(scheduler_output.cached_requests)
            step = self.moving.make_step(scheduled)
        self.made_anew.update(scheduler_output.cached_requests)
        expected = self.made_anew.make_step(scheduled)
        assert_same(step, expected)
        token_ids = np.array([7 * self.computed[request_id] for request_id in step.sampling_ids], dtype=np.int64)
        self.moving.append_tokens(step, token_ids)
        self.made_anew.append_tokens(expected, token_ids)
        for request_id in step.sampling_ids:
            self.lengths[request_id] += 1

    def decode(self) -> None:
        self.step({request_id: length - self.computed[request_id] for request_id, length in self.lengths.items()})


def assert_same(step: StepInputs, expected: StepInputs) -> None:
    assert step.request_ids == expected.request_ids
    assert step.sampling_ids == expected.sampling_ids
    for name in ("query_start", "sequence_lengths", "input_ids", "positions", "slot_mapping", "sampling_rows", "next_positions"):
        assert getattr(step, name).tolist() == getattr(expected, name).tolist(), name
    assert (step.last_tokens is None) == (expected.last_tokens is None)
    for row, length in enumerate(step.sequence_lengths.tolist()):
        used = -(-length // BLOCK_SIZE)
        assert step.block_table[row, :used].tolist() == expected.block_table[row, :used].tolist()


def test_requests_that_decode_together_move_on_over_blocks_and_past_the_spare_room() -> None:
    twins = Twins()
    for index in range(5):
        twins.add(f"r{index}", 3 + index)
    num_steps = 2 * SPARE_TOKENS + 20
    for _ in range(num_steps):
        twins.decode()
    assert twins.num_moved == num_steps - 4  # the prefill, the first decode, and one time for each spare room


@pytest.mark.parametrize("seed", range(8))
def test_requests_that_come_go_pause_and_prefill_in_chunks_leave_no_trace(seed: int) -> None:
    rng, twins = random.Random(seed), Twins()
    for number in range(150):
        if not twins.lengths or (len(twins.lengths) < 6 and rng.random() < 0.1):
            twins.add(f"r{number}", rng.randint(1, 30))
        elif len(twins.lengths) > 1 and rng.random() < 0.08:
            twins.remove(rng.choice(list(twins.lengths)))
        scheduled = {request_id: length - twins.computed[request_id] for request_id, length in twins.lengths.items()}
        if rng.random() < 0.2:
            chosen = rng.sample(list(scheduled), rng.randint(1, len(scheduled)))
            scheduled = {request_id: rng.randint(1, scheduled[request_id]) for request_id in chosen}
        twins.step(scheduled)
    assert twins.num_moved > 30


def test_a_request_without_a_block_for_its_token_is_found_out() -> None:
    twins = Twins()
    twins.add("a", BLOCK_SIZE - 2)
    twins.add("b", 1)
    for _ in range(3):
        twins.decode()
    scheduler_output = twins.output({"a": 1, "b": 1})
    assert scheduler_output.cached_requests.new_block_ids[0]
    scheduler_output.cached_requests.new_block_ids[0] = []
    assert twins.moving.continue_step(scheduler_output) is None
    twins.moving.update(scheduler_output.cached_requests)
    assert twins.moving.find_faults({"a": 1, "b": 1}) == {"a": "scheduled for 1 tokens, up to the 5th, for which it has no KV cache slots"}


@pytest.mark.parametrize("change", [{"num_computed_tokens": [2, 9]}, {"request_ids": ["b", "a"]}])
def test_a_step_that_says_something_else_of_its_requests_is_no_continuation(change: dict[str, list[object]]) -> None:
    twins = Twins()
    twins.add("a", 2)
    twins.add("b", 2)
    for _ in range(2):
        twins.decode()
    scheduler_output = twins.output({"a": 1, "b": 1})
    for name, value in change.items():
        setattr(scheduler_output.cached_requests, name, value)
    assert twins.moving.continue_step(scheduler_output) is None
