from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from stoker_engine.core.sleep import SleepLevel
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import PauseMode, SleepTag

MakeEngine = Callable[..., Any]


class PauseMachine(RuleBasedStateMachine):
    """Requests, pauses, sleeps and resets in any order: nobody computes without memory, and who is not aborted gets its own tokens."""

    def __init__(self, make: MakeEngine, checks: Any, reference_output: Callable[..., Any]) -> None:
        super().__init__()
        self.make, self.checks, self.reference_output = make, checks, reference_output

    @initialize(
        num_blocks=st.integers(8, 14),
        policy=st.sampled_from(["fcfs", "priority"]),
        budget=st.sampled_from([5, 8, 30]),
        stepping=st.sampled_from([{}, {"max_concurrent_batches": 3}, {"async_scheduling": True}]),
    )
    def start(self, num_blocks: int, policy: str, budget: int, stepping: dict[str, Any]) -> None:
        settings = {"scheduling_policy": policy, "max_num_batched_tokens": budget, "max_num_seqs": 3, **stepping}
        self.engine = self.make(num_blocks, max_model_len=28, **settings)
        self.prompts: dict[str, list[int]] = {}
        self.futures: list[Future[None]] = []

    @rule(start=st.sampled_from([1, 9]), length=st.integers(1, 14), copies=st.integers(1, 3))
    def add(self, start: int, length: int, copies: int) -> None:
        for _ in range(copies):
            name = f"r{len(self.prompts):03}"
            self.prompts[name] = [start + index for index in range(length)]
            self.engine.engine.add(name, self.prompts[name], priority=len(self.prompts) % 3, arrival_time=float(len(self.prompts)))

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.control.fire_if_idle()
            if self.engine.engine.has_work():
                paused = self.engine.control.is_paused()
                scheduler_output = self.engine.step()
                known = self.engine.engine.state.requests
                assert not paused or all(new.request_id not in known or known[new.request_id].num_preemptions for new in scheduler_output.new_requests), (
                    "a new request was admitted during a pause"
                )

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.engine.engine.abort(data.draw(st.sampled_from(sorted(self.prompts))))

    @rule(mode=st.sampled_from(list(PauseMode)), clear_cache=st.booleans())
    def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        self.futures.append(self.engine.control.pause(mode, clear_cache))

    @precondition(lambda self: not self.engine.control.is_sleeping())
    @rule()
    def resume(self) -> None:
        self.engine.control.resume()

    @rule(level=st.sampled_from(list(SleepLevel)), mode=st.sampled_from(list(PauseMode)))
    def sleep(self, level: SleepLevel, mode: PauseMode) -> None:
        self.futures.append(self.engine.control.sleep(level, mode))

    @rule(tags=st.none() | st.lists(st.sampled_from(list(SleepTag)), max_size=2))
    def wake_up(self, tags: list[SleepTag] | None) -> None:
        self.engine.control.wake_up(tags)

    @rule(force=st.booleans())
    def reset(self, *, force: bool) -> None:
        in_use = bool(self.engine.engine.state.kv_cache_manager.block_tables)
        assert self.engine.control.reset_prefix_cache(force) is (force or not in_use)
        assert (in_use and not force) or not self.engine.engine.pool.cached_blocks

    @invariant()
    def everything_agrees(self) -> None:
        if hasattr(self, "engine"):
            self.engine.engine.remember_prefixes()
            self.checks.blocks(self.engine.engine)
            self.checks.requests(self.engine.engine)
            assert not self.engine.memory.missing or self.engine.control.is_sleeping()
            assert not self.engine.memory.missing or not self.engine.engine.state.running

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.control.wake_up()
        self.engine.control.resume()
        self.engine.run()
        assert all(future.done() for future in self.futures)
        self.checks.idle(self.engine.engine)
        for name, prompt in self.prompts.items():
            result, expected = self.engine.engine.results[name], self.reference_output(prompt, 28)
            if name in self.engine.engine.aborted or result.finish_reason is FinishReason.ABORT:
                assert result.token_ids == expected.token_ids[: len(result.token_ids)]
            else:
                assert (result.token_ids, result.finish_reason) == (expected.token_ids, expected.finish_reason)


def run(machine: Callable[[], PauseMachine], max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.property("P33")
@pytest.mark.fault("D10", "D19")
@pytest.mark.case("C063")
def test_whatever_is_paused_and_woken_requests_get_their_own_tokens(controlled: MakeEngine, checks: Any, reference_output: Callable[..., Any]) -> None:
    run(lambda: PauseMachine(controlled, checks, reference_output), 150, 30)


@pytest.mark.stress
def test_in_thousands_of_histories_of_pauses_requests_get_their_own_tokens(controlled: MakeEngine, checks: Any, reference_output: Callable[..., Any]) -> None:
    run(lambda: PauseMachine(controlled, checks, reference_output), 3000, 40)
