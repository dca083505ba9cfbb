"""Every metric, once: its name here and the name under which vLLM's dashboards, llm-d and the Gateway API inference extension read it."""

import enum
from dataclasses import dataclass

from stoker_gateway.histogram import REQUEST_LATENCY_BUCKETS, TTFT_BUCKETS


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(slots=True, frozen=True, kw_only=True)
class MetricSpec:
    """`name` has no prefix and no `_total`. `label` is one more label, beside model_name, whose values are a fixed set; `vllm_label` its name there.

    `is_length`: the buckets end at the model's context length.
    """

    name: str
    vllm_name: str
    kind: MetricKind
    help: str
    label: str | None = None
    vllm_label: str | None = None
    buckets: tuple[float, ...] = ()
    is_length: bool = False


TOKEN_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LENGTH_BUCKETS = tuple(float(mantissa * 10**exponent) for exponent in range(8) for mantissa in (1, 2, 5))
ITERATION_BUCKETS = (1.0, *(float(2**exponent) for exponent in range(3, 15)))
N_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0)


def _counter(name: str, text: str) -> MetricSpec:
    return MetricSpec(name=name, vllm_name=name, kind=MetricKind.COUNTER, help=text)


def _gauge(name: str, vllm_name: str, text: str) -> MetricSpec:
    return MetricSpec(name=name, vllm_name=vllm_name, kind=MetricKind.GAUGE, help=text)


def _labeled(name: str, kind: MetricKind, label: str, text: str) -> MetricSpec:
    return MetricSpec(name=name, vllm_name=name, kind=kind, help=text, label=label, vllm_label=label)


def _seconds(name: str, text: str, buckets: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=name, vllm_name=name, kind=MetricKind.HISTOGRAM, help=text, buckets=buckets)


def _length(name: str, text: str) -> MetricSpec:
    return MetricSpec(name=name, vllm_name=name, kind=MetricKind.HISTOGRAM, help=text, buckets=LENGTH_BUCKETS, is_length=True)


METRICS: tuple[MetricSpec, ...] = (
    _labeled("engine_state", MetricKind.GAUGE, "state", "1 for the state that the engine is in, 0 for the others."),
    _labeled(
        "engine_sleep_state", MetricKind.GAUGE, "sleep_state", "1 for where the weights are: with an awake engine, put aside by its sleep, or given up by it."
    ),
    _gauge("num_requests_running", "num_requests_running", "Requests in the engine's running list."),
    _gauge("num_requests_waiting", "num_requests_waiting", "Requests waiting for a place in the engine."),
    _labeled("num_requests_waiting_by_reason", MetricKind.GAUGE, "reason", "num_requests_waiting by what they wait for: a place, or their grammar."),
    _gauge("kv_cache_usage_ratio", "kv_cache_usage_perc", "Share of the KV cache's blocks in use, 0 to 1."),
    _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
    _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    _counter("num_preemptions", "Requests put back to waiting because the KV cache was full."),
    _counter("prompt_tokens", "Prompt tokens of requests whose first token has come."),
    _counter("prompt_tokens_cached", "Those of prompt_tokens that the prefix cache served."),
    _labeled("prompt_tokens_by_source", MetricKind.COUNTER, "source", "prompt_tokens by where they came from."),
    _counter("generation_tokens", "Generated tokens."),
    _counter("corrupted_requests", "Requests whose logits were not finite."),
    _counter("requests", "Requests sent to the engine, each of n choices counted: those in flight and those in request_success."),
    _labeled("requests_refused", MetricKind.COUNTER, "reason", "HTTP requests that were refused before anything was sent."),
    MetricSpec(
        name="request_success",
        vllm_name="request_success",
        kind=MetricKind.COUNTER,
        help="Finished requests by why they ended.",
        label="finish_reason",
        vllm_label="finished_reason",
    ),
    _seconds("time_to_first_token_seconds", "From a request's arrival to its first token.", TTFT_BUCKETS),
    _seconds("inter_token_latency_seconds", "Between two tokens of a request.", TOKEN_LATENCY_BUCKETS),
    _seconds("request_time_per_output_token_seconds", "Decode time of a request per token after the first.", TOKEN_LATENCY_BUCKETS),
    _seconds("e2e_request_latency_seconds", "From a request's arrival to its end.", REQUEST_LATENCY_BUCKETS),
    _seconds("request_queue_time_seconds", "From a request's arrival in the engine to its first step.", REQUEST_LATENCY_BUCKETS),
    _seconds("request_prefill_time_seconds", "From a request's first step to its first token.", REQUEST_LATENCY_BUCKETS),
    _seconds("request_decode_time_seconds", "From a request's first token to its last.", REQUEST_LATENCY_BUCKETS),
    _seconds("request_inference_time_seconds", "From a request's first step to its last token.", REQUEST_LATENCY_BUCKETS),
    MetricSpec(
        name="iteration_tokens",
        vllm_name="iteration_tokens_total",
        kind=MetricKind.HISTOGRAM,
        help="Tokens in one step of the engine.",
        buckets=ITERATION_BUCKETS,
    ),
    _length("request_prompt_tokens", "Prompt tokens of a finished request."),
    _length("request_generation_tokens", "Generated tokens of a finished request."),
    _length("request_max_num_generation_tokens", "Most tokens that any choice of a finished request may have."),
    _length("request_params_max_tokens", "max_tokens of a finished request."),
    _length("request_prefill_kv_computed_tokens", "Prompt tokens of a finished request that the prefix cache did not serve."),
    MetricSpec(name="request_params_n", vllm_name="request_params_n", kind=MetricKind.HISTOGRAM, help="n of a finished request.", buckets=N_BUCKETS),
)
