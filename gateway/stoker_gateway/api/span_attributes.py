"""A request's span in words: OpenTelemetry's conventions for HTTP and generative AI, and vLLM's for latencies."""

from collections.abc import Mapping
from typing import TypeAlias

from stoker_gateway.api.request_record import RequestRecord
from stoker_gateway.openai.request import ChatCompletionRequest, GenerationRequest

Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]

_REQUEST_FIELDS: Mapping[str, str] = {
    "model": "gen_ai.request.model",
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "n": "gen_ai.request.choice.count",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "stream": "gen_ai.request.stream",
}
"""What a request says, where it says it. Neither prompts nor answers are in a span."""


def span_name(record: RequestRecord) -> str:
    """As the conventions have it; a request that never came to a model is named by its path."""
    if record.request is not None:
        return f"{_operation(record.request)} {record.request.model}"
    return f"{record.method} {record.route}".rstrip()


def request_attributes(record: RequestRecord) -> Attributes:
    attributes: Attributes = {"http.request.method": record.method, "stoker.request.id": record.request_id}
    if record.route:
        attributes["http.route"] = record.route
    if record.request is not None:
        attributes["gen_ai.operation.name"] = _operation(record.request)
        attributes["gen_ai.provider.name"] = "stoker"
        for field, name in _REQUEST_FIELDS.items():
            if (value := getattr(record.request, field)) is not None:
                attributes[name] = value
    return attributes


def response_attributes(record: RequestRecord) -> Attributes:
    attributes: Attributes = {}
    if record.status:
        attributes["http.response.status_code"] = record.status
    if record.status >= 400:
        attributes["error.type"] = str(record.status)
    if record.finished:
        attributes |= {
            "gen_ai.response.id": record.response_id,
            "gen_ai.response.finish_reasons": record.finish_reasons,
            "gen_ai.usage.input_tokens": record.num_prompt_tokens,
            "gen_ai.usage.output_tokens": record.num_output_tokens,
            "gen_ai.usage.cache_read.input_tokens": record.num_cached_tokens,
        }
    return attributes


def latency_attributes(record: RequestRecord) -> Attributes:
    """In seconds, of the choice that ended first; the whole of all of them."""
    if not record.finished:
        return {}
    stats = record.finished[0]
    values = {
        "gen_ai.latency.time_to_first_token": record.time_to_first_token,
        "gen_ai.latency.time_in_queue": stats.queue_time,
        "gen_ai.latency.time_in_model_prefill": stats.prefill_time,
        "gen_ai.latency.time_in_model_decode": stats.decode_time,
        "gen_ai.latency.time_in_model_inference": stats.inference_time,
        "gen_ai.latency.e2e": record.seconds,
    }
    return {name: value for name, value in values.items() if value is not None}


def _operation(request: GenerationRequest) -> str:
    return "chat" if isinstance(request, ChatCompletionRequest) else "text_completion"
