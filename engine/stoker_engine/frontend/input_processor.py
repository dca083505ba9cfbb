"""InputProcessor: a prompt and its SamplingParams → EngineCoreRequest, checked against the model so that nothing invalid reaches the engine."""

import os
import time

import msgspec

from stoker_engine.errors import ContextLengthError, ParameterError
from stoker_engine.frontend.parameter_checks import ModelLimits, check_against_model, check_something_is_allowed, check_text, check_token_ids, check_types
from stoker_engine.frontend.renderer import Prompt, text_of
from stoker_engine.protocol import MAX_REQUEST_ID_LENGTH, EngineCoreReadyResponse, EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.stats import FinishedRequestStats
from stoker_engine.structured_output_checks import check_structured_outputs
from stoker_engine.tokenizer import Tokenizer

MAX_INLINE_WORK = 4096
"""A request that takes more, by `processing_work`, is processed on a thread: about a millisecond, in which the event loop serves others."""
MAX_INLINE_WORK_ALONE = 4 * MAX_INLINE_WORK
"""Of a prompt alone, five milliseconds, where there is no other request whose outputs would wait: the way to a thread and back costs 0.3 ms on a machine that
was idle."""
INTERNAL_ID_BYTES = 8
"""Random, so that no two apis, nor one in a year of requests of the same external id, use an internal id twice."""
MAX_EXTERNAL_ID_LENGTH = MAX_REQUEST_ID_LENGTH - 64
"""In characters: an internal id has the random bytes and the number of a choice, too."""
_MAX_PRIORITY = 2**31 - 1
_WORK_PER_STRING = 12
"""What a call of the tokenizer costs besides its characters, in characters."""
_TOKEN_IDS_PER_CHARACTER = 8
"""Ids are only checked and copied."""


def processing_work(prompt: Prompt, params: SamplingParams) -> int:
    """How much `InputProcessor.process` has to do, in characters to tokenize."""
    num_token_ids = len(params.allowed_token_ids or ())
    num_characters = 2 * sum(len(word) + _WORK_PER_STRING for word in params.bad_words)
    if params.structured_outputs is not None:
        num_characters += len(params.structured_outputs.value)
    if isinstance(prompt, list):
        num_token_ids += len(prompt)
    else:
        num_characters += len(text_of(prompt))
    return num_characters + num_token_ids // _TOKEN_IDS_PER_CHARACTER


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to a request besides prompt and sampling. `request_id` is external: the caller's own, not necessarily unique.

    `arrival_time` is wall-clock seconds; `cache_salt` keeps the prefix cache apart from that of requests with another one. `trace_headers` are carried to
    the engine and back. `finished` gets the numbers of each choice as it ends.
    """

    request_id: str
    arrival_time: float = msgspec.field(default_factory=time.time)
    priority: int = 0
    cache_salt: str | None = None
    trace_headers: dict[str, str] | None = None
    finished: list[FinishedRequestStats] | None = None


class InputProcessor:
    """Makes the engine's requests. Safe to use from several threads, as the tokenizer is.

    Token ids are valid from 0 to the smaller of the model's `vocab_size` and the tokenizer's; `priority_scheduling` says whether priorities mean anything.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int, max_logprobs: int, vocab_size: int, *, priority_scheduling: bool = False) -> None:
        self._tokenizer = tokenizer
        self._limits = ModelLimits(max_model_len, max_logprobs, min(vocab_size, tokenizer.vocab_size))
        self._priority_scheduling = priority_scheduling

    @classmethod
    def for_engine(cls, tokenizer: Tokenizer, ready: EngineCoreReadyResponse) -> "InputProcessor":
        """One that checks requests against the capacity of an engine."""
        return cls(tokenizer, ready.max_model_len, ready.max_logprobs, ready.vocab_size, priority_scheduling=ready.priority_scheduling)

    def process(self, prompt: Prompt, params: SamplingParams, options: RequestOptions) -> EngineCoreRequest:
        """The request, with a new internal id. `params` is left as it is.

        Raises ParameterError for what the model does not allow, and its kind ContextLengthError for a prompt or output that does not fit the context.
        """
        self._check_options(options)
        check_types(params)
        check_against_model(params, self._limits)
        if params.structured_outputs is not None:
            check_structured_outputs(params.structured_outputs)
        prompt_token_ids = self._tokenize(prompt, params)
        max_tokens = self._max_tokens(len(prompt_token_ids), params)
        eos_token_ids = [] if params.ignore_eos else list(self._tokenizer.eos_token_ids)
        check_something_is_allowed(params, eos_token_ids)
        return EngineCoreRequest(
            request_id=f"{options.request_id}-{os.urandom(INTERNAL_ID_BYTES).hex()}",
            prompt_token_ids=prompt_token_ids,
            sampling_params=msgspec.structs.replace(
                params,
                max_tokens=max_tokens,
                skip_reading_prefix_cache=params.skip_reading_prefix_cache or params.prompt_logprobs is not None,
            ),
            arrival_time=options.arrival_time,
            eos_token_ids=eos_token_ids,
            bad_words_token_ids=self._tokenize_bad_words(params.bad_words),
            priority=options.priority,
            cache_salt=options.cache_salt,
            external_request_id=options.request_id,
            trace_headers=options.trace_headers,
        )

    def _check_options(self, options: RequestOptions) -> None:
        if len(options.request_id) > MAX_EXTERNAL_ID_LENGTH:
            raise ParameterError(f"request_id must have at most {MAX_EXTERNAL_ID_LENGTH} characters, got {len(options.request_id)}", "request_id")
        check_text("request_id", options.request_id)
        if options.priority and not self._priority_scheduling:
            raise ParameterError(f"priority must be 0, got {options.priority}: this model is not served with schedulingPolicy priority", "priority")
        if abs(options.priority) > _MAX_PRIORITY:
            raise ParameterError(f"priority must be between {-_MAX_PRIORITY} and {_MAX_PRIORITY}, got {options.priority}", "priority")
        if options.cache_salt is not None:
            if not options.cache_salt:
                raise ParameterError("cache_salt must be a non-empty string", "cache_salt")
            check_text("cache_salt", options.cache_salt)

    def _tokenize(self, prompt: Prompt, params: SamplingParams) -> list[int]:
        if isinstance(prompt, list):
            if len(prompt) >= self._limits.max_model_len:  # before anything walks them: there may be millions
                raise ContextLengthError(self._too_long(str(len(prompt)), params), "input_tokens")
            token_ids = _copied_token_ids(prompt)
            check_token_ids("prompt", token_ids, self._limits)
        else:
            text = text_of(prompt)
            self._check_text_length(text, params)
            check_text("prompt", text)
            token_ids = self._tokenizer.encode(text) if isinstance(prompt, str) else self._tokenizer.encode_chat(text)
        if not token_ids:
            raise ParameterError("prompt must not be empty", "prompt")
        return token_ids

    def _check_text_length(self, text: str, params: SamplingParams) -> None:
        """Refuse what cannot fit however it is tokenized, before that costs anything."""
        characters = self._tokenizer.max_token_characters
        if characters is not None and len(text) > self._limits.max_model_len * characters:
            raise ContextLengthError(self._too_long(f"at least {self._limits.max_model_len + 1}", params), "input_text")

    def _max_tokens(self, num_prompt_tokens: int, params: SamplingParams) -> int:
        """The most tokens that this request may produce."""
        room = self._limits.max_model_len - num_prompt_tokens
        max_tokens = room if params.max_tokens is None else params.max_tokens
        if room < 1:
            raise ContextLengthError(self._too_long(str(num_prompt_tokens), params), "input_tokens")
        if max_tokens > room:
            parameter = "max_tokens" if max_tokens > self._limits.max_model_len else "input_tokens"
            raise ContextLengthError(self._too_long(str(num_prompt_tokens), params), parameter)
        if params.min_tokens > max_tokens:
            raise ParameterError(f"min_tokens must be at most {max_tokens}, what the context leaves for the output, got {params.min_tokens}", "min_tokens")
        return max_tokens

    def _too_long(self, num_prompt_tokens: str, params: SamplingParams) -> str:
        requested = "at least 1 token" if params.max_tokens is None else f"{params.max_tokens} tokens"
        return (
            f"This model's maximum context length is {self._limits.max_model_len} tokens. The prompt has {num_prompt_tokens} tokens and {requested} "
            "of output were requested. Shorten the prompt or request less output."
        )

    def _tokenize_bad_words(self, bad_words: list[str]) -> list[list[int]]:
        """Each word as it begins a text, and as it follows a space where that makes it another token sequence of the same length."""
        sequences: list[list[int]] = []
        for word in bad_words:
            bare = self._tokenizer.encode_chat(word.lstrip() or word)
            spaced = self._tokenizer.encode_chat(" " + word.lstrip())
            sequences.append(bare)
            if spaced[0] != bare[0] and len(spaced) == len(bare):
                sequences.append(spaced)
        for token_id in (token_id for sequence in sequences for token_id in sequence):
            if token_id >= self._limits.vocab_size:
                raise ParameterError(f"bad_words needs the token id {token_id}, outside the vocabulary of {self._limits.vocab_size}", "bad_words")
        return sequences


def _copied_token_ids(prompt: list[int]) -> list[int]:
    try:
        return msgspec.convert(prompt, list[int])
    except msgspec.ValidationError as error:
        raise ParameterError(f"prompt is no list of token ids: {error}", "prompt") from None
