from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stoker_engine.finish_reason import FinishReason

A = [1 + i % 27 for i in range(60)]
EOS = 0
MODES = [{}, {"max_concurrent_batches": 2}, {"max_concurrent_batches": 4}, {"async_scheduling": True}, {"async_scheduling": True, "max_concurrent_batches": 4}]


class Cycle:
    """A grammar whose tokens come from `sets` in turn, over and over; after `num_tokens` only the end may follow."""

    def __init__(self, sets: list[set[int]], num_tokens: int) -> None:
        self.sets = sets
        self.num_tokens = num_tokens
        self.accepted: list[int] = []

    def allowed(self) -> set[int]:
        return self.sets[len(self.accepted) % len(self.sets)] if len(self.accepted) < self.num_tokens else {EOS}

    def is_ready(self) -> bool:
        return True

    def bitmask(self) -> bytes:
        return sum(1 << token_id for token_id in self.allowed()).to_bytes(4, "little")

    def accept(self, token_ids: Sequence[int]) -> bool:
        for token_id in token_ids:
            if self.is_terminated() or token_id not in self.allowed():
                return False
            self.accepted.append(token_id)
        return True

    def is_terminated(self) -> bool:
        return len(self.accepted) > self.num_tokens


def run_all(engine: Any) -> list[list[int]]:
    grammars = [Cycle([{1, 2, 3}, {10, 11}], 7), Cycle([{20}, {21, 22}, {23}], 5)]
    engine.add("free", A[:5], max_tokens=12, eos_token_ids=[])
    engine.add("first", A[5:12], grammar=grammars[0], max_tokens=20, eos_token_ids=[EOS])
    engine.add("second", A[12:14], grammar=grammars[1], max_tokens=20, eos_token_ids=[])
    engine.run()
    assert grammars[0].accepted == engine.results["first"].token_ids
    assert grammars[1].accepted == engine.results["second"].token_ids
    assert [engine.results[request_id].finish_reason for request_id in ("first", "second")] == [FinishReason.STOP] * 2
    return [engine.results[request_id].token_ids for request_id in ("free", "first", "second")]


@pytest.mark.fault("C5")
@pytest.mark.property("P27")
@pytest.mark.parametrize("mode", MODES)
def test_every_token_of_a_constrained_request_is_one_its_grammar_allows(engine_of: Callable[..., Any], mode: dict[str, Any]) -> None:
    plain = run_all(engine_of(64, enable_prefix_caching=False, max_num_batched_tokens=512))
    # A small pool and budget: chunks, preemption, and rows that come and go.
    assert run_all(engine_of(9, max_num_batched_tokens=5, **mode)) == plain
    assert all(token_id in ((1, 2, 3) if index % 2 == 0 else (10, 11)) for index, token_id in enumerate(plain[1][:-1]))


@pytest.mark.property("P27")
def test_a_step_is_sampled_only_when_its_grammar_has_seen_the_token_before(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(32, async_scheduling=True)
    grammar = Cycle([{1}, {2}, {3}], 3)
    engine.add("a", A[:5], grammar=grammar, max_tokens=8)
    log = engine.executor.log
    engine.step()
    assert log == ["forward", "sample by bitmask"]
    assert engine.stepping.num_in_flight == 1
    engine.step()
    # The second forward was on its way before the first token was known; its sampling came after.
    assert log == ["forward", "sample by bitmask", "forward", "sample by bitmask"]
    assert grammar.accepted == [1]
    assert engine.stepping.num_in_flight == 1
    engine.run()
    assert grammar.accepted == [1, 2, 3, EOS]


def test_a_deep_queue_defers_until_the_very_token_is_known(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(32, async_scheduling=True, max_concurrent_batches=4, max_num_batched_tokens=6)
    log = engine.executor.log
    engine.add("free", A[:18], max_tokens=1, eos_token_ids=[])
    engine.step()
    engine.step()
    engine.add("a", A[20:21], grammar=Cycle([{1}, {2}], 4), max_tokens=8)
    engine.step()
    assert log == ["forward", "sample"] * 3
    engine.step()
    engine.step()
    assert log[-1] == "forward"
    while engine.stepping.num_in_flight > 1:
        assert log[-1] == "forward"
        engine.step()
    assert log[-1] == "sample by bitmask"


def test_requests_of_free_form_do_not_wait_for_each_others_tokens(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(32, async_scheduling=True, max_concurrent_batches=4)
    engine.add("a", A[:5], max_tokens=8, eos_token_ids=[])
    for _ in range(3):
        engine.step()
    assert engine.executor.log == ["forward", "sample"] * 3
    assert engine.stepping.num_in_flight == 3


@pytest.mark.fault("C7")
@pytest.mark.parametrize("mode", MODES)
def test_a_complete_output_ends_its_request_where_no_token_would(engine_of: Callable[..., Any], mode: dict[str, Any]) -> None:
    engine = engine_of(32, **mode)
    engine.add("a", A[:5], grammar=Cycle([{7}], 2), max_tokens=50, eos_token_ids=[])
    engine.run()
    assert (engine.results["a"].token_ids, engine.results["a"].finish_reason) == ([7, 7, EOS], FinishReason.STOP)


@pytest.mark.property("P27")
def test_a_token_that_its_grammar_refuses_fails_the_request_alone(engine_of: Callable[..., Any]) -> None:
    class Deaf(Cycle):
        def accept(self, token_ids: Sequence[int]) -> bool:
            return False

    engine = engine_of(32)
    engine.add("a", A[:5], grammar=Deaf([{7}], 2))
    engine.add("b", A[:5], max_tokens=2, eos_token_ids=[])
    engine.run()
    assert engine.results["a"].finish_reason is FinishReason.ERROR
    assert engine.results["a"].outputs[-1].failure_message == "the grammar does not allow the tokens [7]"
    assert len(engine.results["b"].token_ids) == 2


def test_a_grammar_whose_request_was_aborted_while_it_was_deferred_holds_nobody_up(engine_of: Callable[..., Any], checks: Any) -> None:
    engine = engine_of(32, async_scheduling=True, max_concurrent_batches=4)
    engine.add("a", A[:5], grammar=Cycle([{1}, {2}], 4), max_tokens=8)
    engine.add("b", A[6:9], max_tokens=4, eos_token_ids=[])
    engine.step()
    engine.step()
    engine.abort("a")
    engine.run()
    assert len(engine.results["b"].token_ids) == 4
    checks.idle(engine)
