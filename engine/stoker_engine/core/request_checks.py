"""Checks of a request against the model, in the engine: whoever sent it, nothing that could fail a step gets as far as one."""

from collections.abc import Collection

from stoker_engine.errors import ContextLengthError, ParameterError
from stoker_engine.protocol import EngineCoreReadyResponse, EngineCoreRequest
from stoker_engine.sampling_params import ALL_LOGPROBS


def check_request(request: EngineCoreRequest, ready: EngineCoreReadyResponse) -> None:
    """Raises ParameterError for an id outside the vocabulary, a prompt that leaves no room for a token, or more log probabilities than allowed.

    A frontend has checked all this before and has better words for it; a damaged or foreign message has been checked by nobody.
    """
    num_prompt_tokens = len(request.prompt_token_ids)
    if num_prompt_tokens >= ready.max_model_len:
        raise ContextLengthError(f"a prompt of {num_prompt_tokens} tokens leaves no room in a context of {ready.max_model_len}", "prompt")
    _check_ids("prompt", request.prompt_token_ids, ready.vocab_size)
    for word in request.bad_words_token_ids:
        if not word:
            raise ParameterError("bad_words has a word without tokens", "bad_words")
        _check_ids("bad_words", word, ready.vocab_size)
    params = request.sampling_params
    for name in ("logit_bias", "allowed_token_ids", "logprob_token_ids", "stop_token_ids"):
        _check_ids(name, getattr(params, name) or (), ready.vocab_size)
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None and (ready.vocab_size if value == ALL_LOGPROBS else value) > ready.max_logprobs:
            raise ParameterError(f"{name} must be at most {ready.max_logprobs}, got {value}", name)


def _check_ids(name: str, token_ids: Collection[int], vocab_size: int) -> None:
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= vocab_size):
        raise ParameterError(f"{name} has a token id outside the vocabulary of {vocab_size}", name)
