from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.model_runner_output import NOT_FINITE, NOTHING_ALLOWED, ModelRunnerOutput
from stoker_engine.core.request import Request
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreEventType, EngineCoreOutput, LogprobsLists

A = [1 + i % 27 for i in range(40)]
ROWS = LogprobsLists([[5], [6], [7]], [[-0.5], [-0.6], [-0.7]], [1, 2, 3])


def event_types(output: EngineCoreOutput) -> list[EngineCoreEventType]:
    return [event.type for event in output.events or []]


def one_step(scheduler: Scheduler, output: ModelRunnerOutput) -> EngineCoreOutput:
    (outputs,) = scheduler.update_from_output(scheduler.schedule(), output).values()
    (engine_core_output,) = outputs
    return engine_core_output


def scheduler_with(config: Any, *requests: Request) -> Scheduler:
    scheduler = Scheduler(config, max_model_len=64, num_blocks=32)
    for request in requests:
        scheduler.add_request(request)
    return scheduler


@pytest.mark.property("P35")
def test_a_partial_prefill_says_nothing(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_batched_tokens=8)
    engine.add("a", A[:20])
    engine.step()
    engine.step()
    assert engine.results["a"].outputs == []
    engine.step()
    assert len(engine.results["a"].outputs) == 1


def test_the_first_output_tells_the_way_there_once(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:9], eos_token_ids=[])
    engine.step()
    engine.step()
    first, second = engine.results["a"].outputs
    assert event_types(first) == [EngineCoreEventType.QUEUED, EngineCoreEventType.SCHEDULED]
    assert first.events is not None
    assert first.events[0].timestamp <= first.events[1].timestamp
    assert first.prefill_stats is not None
    assert (first.prefill_stats.num_prompt_tokens, first.prefill_stats.num_cached_tokens) == (9, 0)
    assert (second.events, second.prefill_stats) == (None, None)


def test_a_preemption_is_told_with_the_next_output(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(5, max_num_batched_tokens=16)
    engine.add("a", A[:7], max_tokens=4, eos_token_ids=[])
    engine.add("b", A[7:14], max_tokens=4, eos_token_ids=[])
    engine.run()
    third = engine.results["b"].outputs[2]
    assert event_types(third) == [EngineCoreEventType.PREEMPTED, EngineCoreEventType.SCHEDULED]
    assert third.prefill_stats is None


def test_a_request_preempted_before_its_first_token_keeps_its_first_prefill_stats(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(6, max_num_batched_tokens=8)
    engine.add("a", A[:7], max_tokens=6, eos_token_ids=[])
    engine.add("b", A[7:19], max_tokens=1)
    engine.run()
    assert engine.scheduler.make_stats().num_preemptions == 1
    first = engine.results["b"].outputs[0]
    assert first.prefill_stats.num_cached_tokens == 0
    assert event_types(first)[:2] == [EngineCoreEventType.QUEUED, EngineCoreEventType.SCHEDULED]


@pytest.mark.property("P44")
def test_log_probabilities_come_for_exactly_the_tokens_kept(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = scheduler_with(config_of(), request_of("a", eos_token_ids=[6], logprobs=0))
    output = one_step(scheduler, ModelRunnerOutput({"a": [5, 6, 7]}, {"a": ROWS}))
    assert output.new_token_ids == [5, 6]
    assert output.finish_reason is FinishReason.STOP
    assert output.new_logprobs == LogprobsLists([[5], [6]], [[-0.5], [-0.6]], [1, 2])


def test_log_probabilities_pass_through_while_a_request_goes_on(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = scheduler_with(config_of(), request_of("a", logprobs=0))
    row = LogprobsLists([[5]], [[-0.5]], [1])
    assert one_step(scheduler, ModelRunnerOutput({"a": [5]}, {"a": row})).new_logprobs is row


def test_prompt_log_probabilities_come_with_the_first_output_only(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = scheduler_with(config_of(), request_of("a", prompt_logprobs=0))
    output = ModelRunnerOutput({"a": [5]}, prompt_logprobs={"a": ROWS})
    assert one_step(scheduler, output).new_prompt_logprobs is ROWS
    assert one_step(scheduler, output).new_prompt_logprobs is None


def test_a_stop_token_is_named(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    output = one_step(scheduler_with(config_of(), request_of("a", stop_token_ids=[5])), ModelRunnerOutput({"a": [5]}))
    assert (output.finish_reason, output.stop_reason) == (FinishReason.STOP, 5)


def test_restrictions_that_leave_no_token_are_the_requests_own_fault(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = scheduler_with(config_of(), request_of("a", allowed_token_ids=[5]))
    output = one_step(scheduler, ModelRunnerOutput(failures={"a": NOTHING_ALLOWED}))
    assert (output.finish_reason, output.failure_message, output.failed_parameter) == (FinishReason.ERROR, NOTHING_ALLOWED, "allowed_token_ids")


@pytest.mark.fault("B11")
def test_a_failed_request_ends_alone_with_the_reason(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:9], eos_token_ids=[])
    engine.add("b", A[9:18], eos_token_ids=[])
    engine.worker.failing = {"a"}
    engine.step()
    (output,) = engine.results["a"].outputs
    assert (output.finish_reason, output.failure_message, output.new_token_ids) == (FinishReason.ERROR, NOT_FINITE, [])
    assert len(engine.results["b"].token_ids) == 1
    assert engine.scheduler.make_stats().num_nan_logits == 1
    assert engine.step().finished_request_ids == ["a"]
    assert engine.scheduler.make_stats().num_nan_logits == 1


def test_the_blocks_of_a_failed_request_are_not_shared(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:9])
    engine.worker.failing = {"a"}
    engine.step()
    engine.add("b", A[:9])
    assert engine.step().num_scheduled_tokens == {"b": 9}
    engine.run()
    assert engine.results["b"].token_ids == reference_output(A[:9]).token_ids


def test_a_request_that_shares_a_failed_block_in_the_same_step_fails_too(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:9])
    engine.add("b", A[:10])
    engine.worker.failing = {"a"}
    engine.step()
    assert engine.results["b"].finish_reason is FinishReason.ERROR
    assert engine.pool.cached_blocks == {}


@pytest.mark.fault("C19")
def test_a_computed_request_without_a_token_fails_rather_than_waits(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = scheduler_with(config_of(), request_of("a"))
    output = one_step(scheduler, ModelRunnerOutput())
    assert (output.finish_reason, output.failure_message) == (FinishReason.ERROR, "the worker returned no token")
    assert scheduler.num_unfinished_requests == 0
