"""Request fields → SamplingParams. What a request leaves out comes from the model's generation config, then from SamplingParams."""

from collections.abc import Mapping
from typing import Any

from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_gateway.api.structured_outputs import structured_outputs
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest, GenerationRequest

_TRANSLATED = {"max_tokens", "logprobs", "prompt_logprobs", "stop", "structured_outputs"}
_COPIED = tuple(sorted(set(GenerationRequest.__struct_fields__) & set(SamplingParams.__struct_fields__) - _TRANSLATED))

DEFAULT_COMPLETION_MAX_TOKENS = 16


def chat_sampling_params(request: ChatCompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """`max_completion_tokens` wins over the deprecated `max_tokens`; without either, the rest of the context. Raises ParameterError."""
    max_tokens = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    return SamplingParams(
        **_shared(request, defaults),
        max_tokens=max_tokens,
        logprobs=request.num_top_logprobs if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs,
    )


def completion_sampling_params(request: CompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """With `echo`, max_tokens 0 samples one token, which the answer leaves out, and `logprobs` also asks for the prompt's. Raises ParameterError."""
    max_tokens = DEFAULT_COMPLETION_MAX_TOKENS if request.max_tokens is None else max(request.max_tokens, 1)
    prompt_logprobs = request.prompt_logprobs
    if request.echo and prompt_logprobs is None:
        prompt_logprobs = request.logprobs
    return SamplingParams(**_shared(request, defaults), max_tokens=max_tokens, logprobs=request.logprobs, prompt_logprobs=prompt_logprobs)


def _shared(request: GenerationRequest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(defaults)
    for name in _COPIED:
        value = getattr(request, name)
        if value is not None:
            values[name] = value
    if request.stop is not None:
        values["stop"] = [request.stop] if isinstance(request.stop, str) else request.stop
    values["structured_outputs"] = structured_outputs(request.response_format, request.structured_outputs)
    values["output_kind"] = RequestOutputKind.DELTA if request.stream else RequestOutputKind.FINAL_ONLY
    return values
