import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.protocol import EngineCoreReadyResponse, EnginePhase
from stoker_engine.stats import FinishedRequestStats, IterationStats, SchedulerStats
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.openai.decode import decode_chat_completion_request

READY = EngineCoreReadyResponse(
    max_model_len=1000,
    max_num_seqs=4,
    max_logprobs=20,
    num_blocks=64,
    block_size=16,
    vocab_size=100,
    dtype="float32",
    version="1",
    priority_scheduling=False,
    prefix_caching=True,
)
STATUS = EngineStatus(phase=EnginePhase.READY, is_connected=True, ready=READY)
FINISHED = FinishedRequestStats(FinishReason.STOP, 100, 64, 11, 50, 2, 3.0, 0.1, 0.2, 2.5, 2.0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("m")


def samples(page: bytes) -> dict[str, float]:
    return {
        sample.name + "".join(f",{value}" for key, value in sorted(sample.labels.items()) if key not in ("model_name", "engine")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_a_fresh_page_has_every_metric_at_zero(metrics: Metrics) -> None:
    values = {name: value for name, value in samples(metrics.render(EngineStatus())).items() if name.startswith("stoker_")}
    assert values["stoker_request_success_total,abort"] == 0
    assert values.pop("stoker_engine_state,absent") == values.pop("stoker_engine_sleep_state,awake") == 1
    assert set(values.values()) == {0}


def test_both_pages_have_the_same_values(metrics: Metrics) -> None:
    metrics.record(
        SchedulerStats(num_running=2, num_waiting=1, kv_cache_usage=0.5, num_batched_tokens=7), IterationStats(num_prompt_tokens=5, num_cached_tokens=2)
    )
    ours, theirs = samples(metrics.render(STATUS)), samples(metrics.render_vllm(STATUS))
    pairs = {
        "stoker_num_requests_running": "vllm:num_requests_running",
        "stoker_kv_cache_usage_ratio": "vllm:kv_cache_usage_perc",
        "stoker_prompt_tokens_total": "vllm:prompt_tokens_total",
        "stoker_prompt_tokens_by_source_total,local_compute": "vllm:prompt_tokens_by_source_total,local_compute",
        "stoker_iteration_tokens_sum": "vllm:iteration_tokens_total_sum",
        "stoker_cache_config_info,16,64": "vllm:cache_config_info,16,64",
    }
    assert [ours[name] for name in pairs] == [theirs[name] for name in pairs.values()] == [2, 0.5, 5, 3, 7, 1]


def test_an_endpoint_picker_finds_what_the_model_server_protocol_names(metrics: Metrics) -> None:
    metrics.record(SchedulerStats(num_running=2, num_waiting=1, kv_cache_usage=0.5), IterationStats())
    families = {family.name: family for family in text_string_to_metric_families(metrics.render_vllm(STATUS).decode())}
    gauges = {"vllm:num_requests_waiting": 1, "vllm:num_requests_running": 2, "vllm:kv_cache_usage_perc": 0.5, "vllm:cache_config_info": 1}
    for name, value in gauges.items():
        (sample,) = families[name].samples
        assert (families[name].type, sample.name, sample.value) == ("gauge", name, value)
    labels = families["vllm:cache_config_info"].samples[0].labels
    assert (labels["block_size"], labels["num_gpu_blocks"]) == ("16", "64")


def test_every_sample_is_labeled_with_the_model(metrics: Metrics) -> None:
    page = metrics.render_vllm(STATUS).decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            assert sample.labels["model_name"] == "m" and sample.labels["engine"] == "0"


@pytest.mark.property("P68")
@pytest.mark.case("C065")
def test_without_an_engine_nothing_runs_or_waits(metrics: Metrics) -> None:
    metrics.record(SchedulerStats(num_running=2, num_waiting=1, kv_cache_usage=0.5), IterationStats())
    values = samples(metrics.render(EngineStatus()))
    assert values["stoker_num_requests_running"] == values["stoker_num_requests_waiting"] == values["stoker_kv_cache_usage_ratio"] == 0


@pytest.mark.property("P68")
def test_totals_go_on_when_another_engine_counts_from_zero(metrics: Metrics) -> None:
    for total in (5, 8, 2, 3):
        metrics.record(SchedulerStats(num_preemptions=total), IterationStats())
    assert samples(metrics.render(STATUS))["stoker_num_preemptions_total"] == 8 + 3


def test_a_finished_request_is_in_every_histogram_of_requests(metrics: Metrics) -> None:
    metrics.record(None, IterationStats(time_to_first_tokens=[0.02], inter_token_latencies=[0.01, 0.03], finished_requests=[FINISHED]))
    values = samples(metrics.render(STATUS))
    assert values["stoker_request_success_total,stop"] == 1
    assert values["stoker_request_time_per_output_token_seconds_sum"] == pytest.approx(0.2)
    assert values["stoker_request_prefill_kv_computed_tokens_sum"] == 36
    assert (values["stoker_inter_token_latency_seconds_bucket,0.01"], values["stoker_inter_token_latency_seconds_bucket,+Inf"]) == (1, 2)
    assert all(values[name] >= 1 for name in values if name.endswith("_count") and "iteration" not in name)


def test_a_request_that_never_ran_has_no_times(metrics: Metrics) -> None:
    aborted = FinishedRequestStats(FinishReason.ABORT, 10, 0, 0, None, 1, 0.5, None, None, None, None)
    metrics.record(None, IterationStats(finished_requests=[aborted]))
    values = samples(metrics.render(STATUS))
    assert values["stoker_request_success_total,abort"] == 1 and values["stoker_e2e_request_latency_seconds_count"] == 1
    assert values["stoker_request_queue_time_seconds_count"] == values["stoker_request_params_max_tokens_count"] == 0


def test_buckets_of_lengths_end_at_the_context_length(metrics: Metrics) -> None:
    values = samples(metrics.render(STATUS))
    bounds = [float(name.partition(",")[2]) for name in values if name.startswith("stoker_request_prompt_tokens_bucket")]
    assert bounds == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, float("inf")]


def test_http_requests_are_counted_by_path_and_status_and_strangers_make_no_series(metrics: Metrics) -> None:
    for path, route, status in (("/v1/completions", "/v1/completions", 200), ("/v1/completions", "/v1/completions", 404), ("/livez", "/livez", 200)):
        metrics.http.observe(RequestRecord("id", "POST", path, 0.0, route=route, status=status, seconds=0.25))
    for number in range(1000):
        metrics.http.observe(RequestRecord("id", f"M{number}", f"/{number}", 0.0, status=404))
    metrics.http.observe(RequestRecord("id", "POST", "/v1/completions", 0.0, route="/v1/completions"))
    ours = {name: value for name, value in samples(metrics.render(STATUS)).items() if name.startswith("stoker_http_requests_total")}
    assert ours == {
        "stoker_http_requests_total,POST,/v1/completions,200": 1,
        "stoker_http_requests_total,POST,/v1/completions,404": 1,
        "stoker_http_requests_total,POST,/v1/completions,499": 1,
        "stoker_http_requests_total,other,other,404": 1000,
    }
    theirs = samples(metrics.render_vllm(STATUS))
    assert theirs["http_requests_total,/v1/completions,POST,4xx"] == 2
    assert theirs["http_request_duration_seconds_count,/v1/completions,POST"] == 3


def test_what_waits_is_told_by_its_reason(metrics: Metrics) -> None:
    metrics.record(SchedulerStats(num_waiting=5, num_deferred=2), IterationStats())
    values = samples(metrics.render(STATUS))
    assert [values[f"stoker_num_requests_waiting_by_reason,{reason}"] for reason in ("capacity", "deferred")] == [3, 2]
    assert samples(metrics.render(EngineStatus()))["stoker_num_requests_waiting_by_reason,deferred"] == 0


def test_answers_that_might_have_called_are_counted_by_what_they_did(metrics: Metrics) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    for extra in ({}, {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}):
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools, **extra}
        record = RequestRecord("id", "POST", "/v1/chat/completions", 0.0, route="/v1/chat/completions")
        record.request = decode_chat_completion_request(msgspec.json.encode(body))
        record.tool_outcomes = ["called", "answered"]
        metrics.tools.observe(record)
    values = samples(metrics.render(STATUS))
    prefix = "stoker_tool_call_parser_invocations_total"
    assert [values[f"{prefix},{mode},{outcome},chat"] for mode in ("auto", "required", "named") for outcome in ("called", "answered")] == [1] * 6


def test_the_level_of_a_sleep_says_where_the_weights_are(metrics: Metrics) -> None:
    asleep = EngineStatus(phase=EnginePhase.SLEEPING, is_connected=True, ready=READY)

    def where(status: EngineStatus) -> list[str]:
        values = samples(metrics.render_vllm(status))
        return [name.rpartition(",")[2] for name, value in values.items() if name.startswith("vllm:engine_sleep_state") and value]

    metrics.fell_asleep(2)
    assert (where(asleep), where(STATUS)) == (["discard_all"], ["awake"])
    metrics.fell_asleep(1)
    assert where(asleep) == ["weights_offloaded"]
