from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from stoker_engine.core.sleep import SleepLevel
from stoker_engine.protocol import PauseMode, SleepTag
from stoker_engine.sampling_params import RepetitionDetection

MakeEngine = Callable[..., Any]

# A pool of hardly more than one longest request keeps preemption frequent.
engines = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(min_value=8, max_value=13),
        "late": st.booleans(),
        "max_num_seqs": st.sampled_from([5, 3, 2, 1]),
        "max_num_batched_tokens": st.sampled_from([30, 8, 5]),
        "enable_prefix_caching": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "watermark": st.sampled_from([0.0, 0.2]),
    }
)
modes = st.sampled_from(
    [{}, {"max_concurrent_batches": 2}, {"max_concurrent_batches": 4}, {"async_scheduling": True}, {"async_scheduling": True, "max_concurrent_batches": 4}]
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
        "logprobs": st.just(1),
        "repetition_detection": st.just(RepetitionDetection(max_size=2)),
        "grammar": st.sampled_from([12, 4, 1, 0]),
    },
)
pause_modes = st.sampled_from(list(PauseMode))


class EngineCoreMachine(RuleBasedStateMachine):
    def __init__(self, make: MakeEngine) -> None:
        super().__init__()
        self.make = make

    @initialize(settings=engines, mode=modes)
    def start(self, settings: dict[str, Any], mode: dict[str, Any]) -> None:
        self.engine = self.make(**settings, **mode)

    @rule(prompt=prompts, fields=params, priority=st.integers(0, 2), copies=st.integers(min_value=1, max_value=4))
    def add(self, prompt: list[int], fields: dict[str, Any], priority: int, copies: int) -> None:
        for _ in range(copies):
            self.engine.add(prompt, fields, priority)

    @precondition(lambda self: self.engine.ended_ids)
    @rule(data=st.data(), prompt=prompts, fields=params)
    def add_with_the_id_of_an_ended_request(self, data: st.DataObject, prompt: list[int], fields: dict[str, Any]) -> None:
        self.engine.add(prompt, fields, 0, data.draw(st.sampled_from(self.engine.ended_ids)))

    @precondition(lambda self: self.engine.live_ids)
    @rule(data=st.data())
    def add_with_the_id_of_a_live_request(self, data: st.DataObject) -> None:
        self.engine.add_again(data.draw(st.sampled_from(self.engine.live_ids)))

    @precondition(lambda self: self.engine.core.has_work())
    @rule(count=st.integers(min_value=1, max_value=6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()

    @precondition(lambda self: self.engine.asked)
    @rule(data=st.data(), eagerly=st.booleans())
    def abort(self, data: st.DataObject, *, eagerly: bool) -> None:
        names = [*data.draw(st.lists(st.sampled_from(sorted(self.engine.asked)), max_size=2)), "never"]
        (self.engine.abort_eagerly if eagerly else self.engine.abort)(names)

    @rule(force=st.booleans())
    def reset(self, *, force: bool) -> None:
        self.engine.reset(force=force)

    @rule(mode=pause_modes, clear_cache=st.booleans())
    def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        self.engine.pause(mode, clear_cache=clear_cache)

    @precondition(lambda self: self.engine.core.control.is_paused())
    @rule()
    def resume(self) -> None:
        self.engine.resume()

    @rule(level=st.sampled_from(list(SleepLevel)), mode=pause_modes)
    def sleep(self, level: SleepLevel, mode: PauseMode) -> None:
        self.engine.sleep(level, mode)

    @precondition(lambda self: self.engine.core.control.is_paused())
    @rule(tags=st.none() | st.lists(st.sampled_from(list(SleepTag)), max_size=2))
    def wake_up(self, tags: list[SleepTag] | None) -> None:
        self.engine.wake_up(tags)

    @precondition(lambda self: self.engine.live_ids)
    @rule()
    def lose_client(self) -> None:
        self.engine.lose_client()

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.settle()


def run(make: MakeEngine, max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: EngineCoreMachine(make),
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )


@pytest.mark.property("P21", "P27", "P33", "P34", "P36", "P37", "P38", "P39", "P40")
def test_in_any_order_of_operations_requests_get_their_own_tokens_and_leave_nothing(whole_engine: MakeEngine) -> None:
    run(whole_engine, 150, 25)


@pytest.mark.stress
def test_in_thousands_of_orders_of_operations_requests_get_their_own_tokens(whole_engine: MakeEngine) -> None:
    run(whole_engine, 3000, 50)
