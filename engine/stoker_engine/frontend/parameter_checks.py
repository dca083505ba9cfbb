"""Checks of SamplingParams that need the model's limits. What needs no model is checked by SamplingParams itself."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from stoker_engine.errors import ParameterError
from stoker_engine.sampling_params import ALL_LOGPROBS, SamplingParams

MAX_STRING_CHARACTERS = 1024
"""Longest stop string and bad word."""


@dataclass(slots=True, frozen=True)
class ModelLimits:
    """Token ids go from 0 to `vocab_size` - 1; prompt and output together have at most `max_model_len` tokens."""

    max_model_len: int
    max_logprobs: int
    vocab_size: int


def check_types(params: SamplingParams) -> None:
    """Raises ParameterError for a field of another type than it is declared with: not everyone has a type checker."""
    try:
        msgspec.convert(msgspec.structs.astuple(params), SamplingParams)
    except msgspec.ValidationError as error:
        for name, kind in get_type_hints(SamplingParams).items():
            _check_type(name, getattr(params, name), kind)
        raise ParameterError(str(error)) from None


def check_against_model(params: SamplingParams, limits: ModelLimits) -> None:
    """Raises ParameterError, naming the field and value, for a token id, a number of logprobs, a string or a seed that cannot be used."""
    check_token_ids("logit_bias", params.logit_bias or (), limits)
    if params.allowed_token_ids is not None and len(params.allowed_token_ids) > limits.vocab_size:
        raise ParameterError(f"allowed_token_ids must be at most {limits.vocab_size} token ids, got {len(params.allowed_token_ids)}", "allowed_token_ids")
    check_token_ids("allowed_token_ids", params.allowed_token_ids or (), limits)
    check_token_ids("stop_token_ids", params.stop_token_ids, limits)
    check_token_ids("logprob_token_ids", params.logprob_token_ids or (), limits)
    _check_num_logprobs("logprobs", params.logprobs, limits)
    _check_num_logprobs("prompt_logprobs", params.prompt_logprobs, limits)
    if params.logprobs is not None and params.logprob_token_ids is not None and params.logprobs != len(params.logprob_token_ids):
        raise ParameterError(f"logprobs must be the number of logprob_token_ids ({len(params.logprob_token_ids)}), got {params.logprobs}", "logprobs")
    _check_strings("stop", params.stop)
    _check_strings("bad_words", params.bad_words)
    if params.seed is not None and params.seed + params.n > 2**64:
        raise ParameterError(f"seed must be at most {2**64 - params.n} with n {params.n}, got {params.seed}", "seed")


def check_something_is_allowed(params: SamplingParams, eos_token_ids: list[int]) -> None:
    """Raises ParameterError where the first tokens, which must not end the request, may be none but those that end it."""
    if params.min_tokens and params.allowed_token_ids is not None:
        ends = {*params.stop_token_ids, *eos_token_ids}
        if ends.issuperset(params.allowed_token_ids):
            raise ParameterError(
                f"allowed_token_ids has only tokens that end the request, which min_tokens ({params.min_tokens}) forbids at first", "allowed_token_ids"
            )


def check_text(name: str, text: str) -> None:
    """Raises ParameterError if the text holds a lone surrogate, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParameterError(f"{name} is not valid Unicode: it has a lone surrogate at character {error.start}", name) from None


def check_token_ids(name: str, token_ids: Collection[int], limits: ModelLimits) -> None:
    """Raises ParameterError, naming the lowest or highest id, if one is outside the vocabulary."""
    if not token_ids:
        return
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id < limits.vocab_size:
            raise ParameterError(f"{name} has the token id {token_id}, outside the vocabulary of {limits.vocab_size}", name)


def _check_type(name: str, value: object, kind: Any) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ParameterError(f"{name}: {error}", name) from None


def _check_num_logprobs(name: str, value: int | None, limits: ModelLimits) -> None:
    if value is None:
        return
    num_logprobs = limits.vocab_size if value == ALL_LOGPROBS else value
    if num_logprobs > limits.max_logprobs:
        raise ParameterError(f"{name} must be at most {limits.max_logprobs}, got {value}", name)


def _check_strings(name: str, strings: list[str]) -> None:
    for text in strings:
        if len(text) > MAX_STRING_CHARACTERS:
            raise ParameterError(f"{name} must have strings of at most {MAX_STRING_CHARACTERS} characters, got one of {len(text)}", name)
        check_text(name, text)
