from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.request import DuplicateRequestError, Request, RequestStatus
from stoker_engine.core.scheduler import Scheduler
from stoker_engine.core.scheduler_settings import check_scheduler_settings
from stoker_engine.errors import ConfigError, ParameterError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams

A = [1 + i % 27 for i in range(40)]


@pytest.mark.property("P18")
def test_one_budget_serves_running_requests_before_waiting_ones(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_batched_tokens=10)
    engine.add("a", A[20:26], eos_token_ids=[])
    engine.step()
    engine.add("b", A[:20], eos_token_ids=[])
    engine.add("c", A[26:31], eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"a": 1, "b": 9}
    assert engine.step().num_scheduled_tokens == {"a": 1, "b": 9}
    assert engine.step().num_scheduled_tokens == {"a": 1, "b": 2, "c": 5}


@pytest.mark.property("P19")
def test_no_more_requests_run_than_there_are_seats(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_seqs=2, max_num_batched_tokens=64)
    for request_id in "abc":
        engine.add(request_id, A[:5], eos_token_ids=[])
    assert list(engine.step().num_scheduled_tokens) == ["a", "b"]
    assert (engine.scheduler.make_stats().num_running, engine.scheduler.make_stats().num_waiting) == (2, 1)


def test_without_chunked_prefill_a_prompt_waits_for_a_step_that_takes_it_whole(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_model_len=20, max_num_batched_tokens=20, enable_chunked_prefill=False)
    engine.add("a", A[:12], eos_token_ids=[])
    engine.add("b", A[12:28], eos_token_ids=[])
    assert engine.step().num_scheduled_tokens == {"a": 12}
    assert engine.step().num_scheduled_tokens == {"a": 1, "b": 16}


def test_a_request_is_admitted_only_when_its_whole_sequence_fits(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(7, max_num_batched_tokens=8)
    engine.add("a", A[:8], eos_token_ids=[], max_tokens=5)
    engine.step()
    engine.add("b", A[8:28], eos_token_ids=[], max_tokens=1)
    assert engine.step().num_scheduled_tokens == {"a": 1}
    engine.run()
    assert len(engine.results["b"].token_ids) == 1
    assert engine.scheduler.make_stats().num_preemptions == 0


@pytest.mark.fault("C8")
def test_a_live_id_cannot_be_added_again(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    first = engine.add("a", A[:5], eos_token_ids=[])
    with pytest.raises(DuplicateRequestError, match="the id a "):
        engine.add("a", A[5:9])
    engine.run()
    assert engine.state.requests == {}
    assert first.status is RequestStatus.FINISHED_LENGTH_CAPPED


@pytest.mark.property("P37")
def test_an_id_may_be_used_again_after_its_request_has_ended(engine_of: Callable[..., Any], reference_output: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:5])
    engine.step()
    engine.abort("a")
    engine.aborted.clear()
    engine.add("a", A[5:9])
    engine.run()
    assert engine.results["a"].token_ids == reference_output(A[5:9]).token_ids


def test_an_aborted_request_frees_its_blocks_wherever_it_is(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(5, max_num_batched_tokens=16)
    for request_id, start in (("running", 0), ("preempted", 7)):
        engine.add(request_id, A[start : start + 7], eos_token_ids=[])
    for _ in range(3):
        engine.step()
    engine.add("waiting", A[14:18])
    assert engine.state.requests["preempted"].status is RequestStatus.PREEMPTED
    assert engine.abort("waiting", "preempted", "running", "running") == [("waiting", 0), ("preempted", 0), ("running", 0)]
    assert engine.scheduler.num_unfinished_requests == 0
    assert engine.scheduler.make_stats().kv_cache_usage == 0.0
    assert engine.state.kv_cache_manager.block_tables == {}


@pytest.mark.property("P36")
def test_aborting_unknown_and_finished_requests_changes_nothing(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:5], max_tokens=1)
    engine.run()
    assert engine.abort("a", "never") == []
    assert not engine.scheduler.has_requests()


@pytest.mark.fault("C18")
def test_a_request_aborted_during_its_step_gets_no_output(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:5])
    engine.add("b", A[5:9], eos_token_ids=[])
    engine.step(abort_meanwhile=["a"])
    assert engine.results["a"].outputs == []
    assert len(engine.results["b"].token_ids) == 1


@pytest.mark.property("P37")
@pytest.mark.fault("D1")
def test_an_id_that_came_back_during_the_step_gets_nothing_of_it(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:5])
    scheduler_output = engine.scheduler.schedule()
    engine.worker.forward(scheduler_output)
    output = engine.worker.sample(None)
    engine.abort("a")
    engine.add("a", A[5:9])
    assert engine.scheduler.update_from_output(scheduler_output, output) == {}


@pytest.mark.property("P28")
def test_the_worker_is_told_of_an_end_exactly_once(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:5], max_tokens=1)
    engine.step()
    assert engine.scheduler.num_unfinished_requests == 0
    assert engine.scheduler.has_requests()
    last = engine.step()
    assert (last.finished_request_ids, last.total_num_scheduled_tokens) == (["a"], 0)
    assert not engine.scheduler.has_requests()


def test_all_requests_end_at_once(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_num_seqs=1)
    engine.add("a", A[:5], client_index=1, eos_token_ids=[])
    engine.add("b", A[:5], client_index=2)
    engine.step()
    assert engine.scheduler.finish_all_requests(RequestStatus.FINISHED_ABORTED) == [("a", 1), ("b", 2)]
    assert engine.scheduler.finish_all_requests(RequestStatus.FINISHED_ABORTED) == []
    assert engine.step().finished_request_ids == ["a", "b"]


def test_outputs_are_grouped_by_client(config_of: Callable[..., Any], request_of: Callable[..., Request]) -> None:
    scheduler = Scheduler(config_of(), max_model_len=64, num_blocks=32)
    for request_id, client_index in (("a", 1), ("b", 0), ("c", 1)):
        scheduler.add_request(request_of(request_id, client_index=client_index))
    scheduler_output = scheduler.schedule()
    outputs = scheduler.update_from_output(scheduler_output, ModelRunnerOutput({"a": [5], "b": [5], "c": [5]}))
    assert {client: [output.request_id for output in group] for client, group in outputs.items()} == {1: ["a", "c"], 0: ["b"]}


def test_a_full_prompt_gives_no_room_for_an_answer(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_model_len=16)
    engine.add("full", A[:16])
    engine.add("fits", A[:15], eos_token_ids=[])
    engine.run()
    (output,) = engine.results["full"].outputs
    assert output.finish_reason is FinishReason.ERROR
    assert output.failure_message == "the prompt has 16 tokens, prompt and output together may have 16"
    assert (len(engine.results["fits"].token_ids), engine.results["fits"].finish_reason) == (1, FinishReason.LENGTH)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ParameterError, match="the prompt is empty"):
        Request.from_engine_core_request(EngineCoreRequest("a", [], SamplingParams(), 0.0), None)


@pytest.mark.fault("C3")
@pytest.mark.case("C052")
def test_requests_larger_than_the_pool_end_and_nobody_behind_them_waits(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(21, max_model_len=1024, block_size=16, max_num_seqs=8, max_num_batched_tokens=2048)
    engine.add("long prompt", [1 + i % 27 for i in range(400)])
    for number in range(5):
        engine.add(f"short {number}", A[number : number + 10])
    engine.add("long answer", [1 + i % 26 for i in range(100)], max_tokens=900, eos_token_ids=[])
    for number in range(5, 10):
        engine.add(f"short {number}", A[number : number + 10])
    while engine.scheduler.has_requests():
        engine.step()
        stats = engine.scheduler.make_stats()
        assert stats.num_running or not stats.num_waiting
    assert engine.results["long prompt"].outputs[0].failure_message == "the prompt has 400 tokens, the KV cache holds 320"
    assert engine.results["long answer"].finish_reason is FinishReason.LENGTH
    assert len(engine.results["long answer"].token_ids) == 220
    assert all(engine.results[f"short {number}"].finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for number in range(10))


@pytest.mark.fault("C2")
def test_min_tokens_beyond_the_context_still_ends(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64, max_model_len=16)
    engine.add("a", A[:10], min_tokens=30, max_tokens=40)
    engine.run()
    assert (len(engine.results["a"].token_ids), engine.results["a"].finish_reason) == (6, FinishReason.LENGTH)


@pytest.mark.property("P39")
def test_a_reset_waits_for_an_idle_engine_and_then_every_lookup_misses(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(64)
    engine.add("a", A[:12], max_tokens=2, eos_token_ids=[])
    engine.step()
    assert not engine.scheduler.reset_prefix_cache()
    engine.run()
    assert engine.scheduler.reset_prefix_cache()
    engine.add("b", A[:12])
    assert engine.step().num_scheduled_tokens == {"b": 12}


def test_the_statistics_count(engine_of: Callable[..., Any]) -> None:
    engine = engine_of(9, max_num_batched_tokens=64)
    engine.add("a", A[:12], max_tokens=2, eos_token_ids=[])
    engine.add("b", A[:9], max_tokens=1)
    engine.step()
    stats = engine.scheduler.make_stats()
    assert (stats.num_running, stats.num_waiting, stats.num_steps, stats.num_batched_tokens) == (1, 0, 1, 13)
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits, stats.kv_cache_usage) == (21, 8, pytest.approx(3 / 8))
    engine.run()
    stats = engine.scheduler.make_stats()
    assert (stats.num_running, stats.num_steps, stats.num_batched_tokens, stats.kv_cache_usage) == (0, 2, 0, 0.0)


@pytest.mark.parametrize(
    ("settings", "max_model_len", "name"),
    [
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 64}, 65, "--max-num-batched-tokens must be at least max_model_len"),
        ({"max_num_batched_tokens": 3, "max_num_seqs": 4}, 8, "--max-num-batched-tokens must be at least --max-num-seqs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_at_start(
    config_of: Callable[..., Any], settings: dict[str, Any], max_model_len: int, name: str
) -> None:
    with pytest.raises(ConfigError, match=name):
        check_scheduler_settings(config_of(**settings), max_model_len)


def test_chunked_prefill_may_have_a_budget_below_the_context(config_of: Callable[..., Any]) -> None:
    check_scheduler_settings(config_of(max_num_batched_tokens=4, max_num_seqs=4), 1024)
