from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from stoker_engine.finish_reason import FinishReason
from stoker_engine.sampling_params import RepetitionDetection

MAX_MODEL_LEN = 28
ENDS = {FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION}

# A pool of hardly more than one longest request keeps preemption frequent.
engines = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(min_value=1 + MAX_MODEL_LEN // 4, max_value=13),
        "max_num_seqs": st.sampled_from([5, 3, 2, 1]),
        "max_num_batched_tokens": st.sampled_from([30, 8, 5]),
        "enable_prefix_caching": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
    }
)
# Few beginnings and lengths: prompts share prefixes, and end before, at and after the end of a block.
prompts = st.builds(
    lambda start, length, tail: [1 + (start + index) % 27 for index in range(length)] + tail,
    st.sampled_from([0, 9]),
    st.integers(min_value=1, max_value=14),
    st.lists(st.integers(min_value=0, max_value=3), max_size=2),
)
params = st.fixed_dictionaries(
    {"max_tokens": st.sampled_from([16, 12, 9, 5, 1])},
    optional={
        "eos_token_ids": st.just([]),
        "stop_token_ids": st.just([3, 5, 7]),
        "cache_salt": st.sampled_from(["x", "y"]),
        "skip_reading_prefix_cache": st.just(True),
        "min_tokens": st.just(1),
        "repetition_detection": st.just(RepetitionDetection(max_size=2)),
    },
)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self, engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]) -> None:
        super().__init__()
        self.engine_of, self.checks, self.reference_output = engine_of, checks, reference_output

    @initialize(settings=engines, chunked=st.booleans())
    def start(self, settings: dict[str, Any], *, chunked: bool) -> None:
        if not chunked:
            settings = {**settings, "enable_chunked_prefill": False, "max_num_batched_tokens": MAX_MODEL_LEN}
        self.engine = self.engine_of(max_model_len=MAX_MODEL_LEN, **settings)
        self.asked: dict[str, tuple[list[int], dict[str, Any]]] = {}
        self.admitted: list[str] = []

    @rule(prompt=prompts, fields=params, copies=st.integers(min_value=1, max_value=4))
    def add(self, prompt: list[int], fields: dict[str, Any], copies: int) -> None:
        for _ in range(copies):
            number = len(self.asked)
            request_id = f"r{number:03}"
            self.asked[request_id] = prompt, fields
            # 2, 1, 0, 2 …: the more urgent often comes while the less urgent runs.
            self.engine.add(request_id, prompt, priority=(2 * number + 2) % 3, arrival_time=float(number), **fields)

    @precondition(lambda self: self.engine.scheduler.has_requests())
    @rule(count=st.integers(min_value=1, max_value=6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.step_once()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.engine.abort(*data.draw(st.lists(st.sampled_from(sorted(self.asked)), max_size=2)), "never")

    @precondition(lambda self: self.engine.state.running)
    @rule(data=st.data())
    def abort_during_a_step(self, data: st.DataObject) -> None:
        self.step_once(abort_meanwhile=[data.draw(st.sampled_from(sorted(self.asked)))])

    @rule()
    def reset(self) -> None:
        in_use = bool(self.engine.state.kv_cache_manager.block_tables)
        assert self.engine.scheduler.reset_prefix_cache() is not in_use
        assert in_use or not self.engine.pool.cached_blocks

    def step_once(self, abort_meanwhile: tuple[str, ...] | list[str] = ()) -> None:
        engine = self.engine
        before = {request.request_id: engine.table(request.request_id) for request in engine.state.running}
        scheduler_output = engine.step(abort_meanwhile)
        if not abort_meanwhile:
            self.checks.step(engine, before, scheduler_output)
        self.check_order(scheduler_output)

    def check_order(self, scheduler_output: Any) -> None:
        new_ids = [new.request_id for new in scheduler_output.new_requests]
        if self.engine.state.limits.priority_scheduling:
            requests = self.engine.state.requests
            admitted = [requests[request_id].wire.priority for request_id in new_ids if request_id in requests]
            waiting = [request.wire.priority for request in self.engine.state.waiting]
            assert not admitted or not waiting or max(admitted) <= min(waiting)
            return
        self.admitted += [request_id for request_id in new_ids if request_id not in self.admitted]
        assert self.admitted == sorted(self.admitted)

    @invariant()
    def everything_agrees(self) -> None:
        if hasattr(self, "engine"):
            self.checks.blocks(self.engine)
            self.checks.requests(self.engine)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        for _ in range(100 * (1 + len(self.asked))):
            if not engine.scheduler.has_requests():
                break
            self.step_once()
            self.everything_agrees()
        self.checks.idle(engine)
        for request_id, (prompt, fields) in self.asked.items():
            self.check_result(request_id, prompt, fields)

    def check_result(self, request_id: str, prompt: list[int], fields: dict[str, Any]) -> None:
        result, expected = self.engine.results[request_id], self.reference_output(prompt, MAX_MODEL_LEN, **fields)
        if request_id in self.engine.aborted:
            assert result.finish_reason is None
            assert result.token_ids == expected.token_ids[: len(result.token_ids)]
            return
        assert (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)
        assert result.finish_reason in ENDS
        assert len(result.token_ids) <= fields["max_tokens"]
        assert len(prompt) + len(result.token_ids) <= MAX_MODEL_LEN
        assert [output.finish_reason is not None for output in result.outputs] == [False] * (len(result.outputs) - 1) + [True]


def run(machine: Callable[[], SchedulerMachine], *, max_examples: int, steps: int, phases: tuple[Phase, ...]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
        ),
    )


@pytest.mark.property("P1", "P2", "P3", "P5", "P6", "P7", "P8", "P9", "P10", "P12", "P18", "P19", "P20", "P22", "P23", "P24")
@pytest.mark.property("P29", "P30", "P31", "P34", "P35", "P38", "P40", "P42")
@pytest.mark.case("C040", "C043")
def test_whatever_happens_every_request_gets_its_own_tokens_and_leaves_nothing(
    engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]
) -> None:
    run(lambda: SchedulerMachine(engine_of, checks, reference_output), max_examples=100, steps=30, phases=(Phase.generate, Phase.shrink))


@pytest.mark.stress
def test_in_thousands_of_histories_every_request_gets_its_own_tokens(engine_of: Callable[..., Any], checks: Any, reference_output: Callable[..., Any]) -> None:
    run(lambda: SchedulerMachine(engine_of, checks, reference_output), max_examples=2000, steps=40, phases=(Phase.generate,))
