"""SamplingParams: how to choose each next token of one request. The values are checked here; what depends on the model, in InputProcessor."""

import enum
import reprlib
from collections.abc import Callable
from typing import Literal

import msgspec

from stoker_engine.errors import ParameterError

GREEDY_TEMPERATURE = 1e-5
"""Below it a request is greedy."""
MIN_TEMPERATURE = 0.01
"""Smaller positive temperatures are raised to it: they would overflow the logits."""
MAX_N = 128
MAX_LOGIT_BIAS_TOKENS = 1024
MAX_STOP_STRINGS = 64
MAX_STOP_TOKEN_IDS = 128
MAX_BAD_WORDS = 1000
MAX_BAD_WORDS_CHARACTERS = 16384
"""Of all bad words together: each is tokenized twice."""
MAX_LOGPROB_TOKEN_IDS = 128
MIN_REPETITION_PENALTY = 0.01
MAX_REPETITION_PENALTY = 100.0
"""The logits of seen tokens are multiplied or divided by it: farther from 1 it says no more, and soon overflows them."""
ALL_LOGPROBS = -1
"""`logprobs=-1` asks for the whole vocabulary, where the engine's max_logprobs allows it."""


class RequestOutputKind(enum.IntEnum):
    """What each output of a request holds: all so far, what is new, or only the end."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class RepetitionDetection(msgspec.Struct, array_like=True, frozen=True):
    """Ends a request whose last tokens are `min_count` copies of one pattern of `min_size` to `max_size` tokens."""

    max_size: int
    min_size: int = 1
    min_count: int = 2


StructuredOutputKind = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag"]


class StructuredOutputs(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """The form that a request's output must have.

    `value` is JSON text for json (a schema), choice (a list of strings) and structural_tag, a pattern for regex, EBNF for grammar, and empty for
    json_object. The form begins after the token sequence `after_token_ids` has been generated, at once where that is empty; with `start_token_id`, at once
    unless the output begins with that token. `parameter` is the request field that asks for it, in the words of errors.
    """

    kind: StructuredOutputKind
    value: str = ""
    after_token_ids: list[int] = []
    parameter: str = "structured_outputs"
    start_token_id: int | None = None


class ReasoningSpan(msgspec.Struct, array_like=True, frozen=True):
    """Where an answer reasons: from `start`, with which it begins, to `end`. `is_open`: the prompt ends within the reasoning."""

    start: str
    end: str
    is_open: bool = False


class SamplingParams(msgspec.Struct, array_like=True, omit_defaults=True, kw_only=True):
    """How to sample one request. Names and meanings are vLLM's; a value out of range raises ParameterError with the field's name.

    `temperature` 0 is greedy. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 are off. `seed` None draws from the engine's own seed. `max_tokens` None is
    the rest of the context. `logprobs` N asks for the N most likely tokens beside the sampled one.
    Stop strings are not looked for within `reasoning`. `kept_special_token_ids` are in the text even with `skip_special_tokens`.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    bad_words: list[str] = []
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    repetition_detection: RepetitionDetection | None = None
    skip_reading_prefix_cache: bool = False
    structured_outputs: StructuredOutputs | None = None
    reasoning: ReasoningSpan | None = None
    kept_special_token_ids: list[int] = []

    def __post_init__(self) -> None:
        for check in _CHECKS:
            check(self)
        if 0 < self.temperature < MIN_TEMPERATURE and self.temperature >= GREEDY_TEMPERATURE:
            self.temperature = MIN_TEMPERATURE
        if self.greedy:
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_TEMPERATURE


_REPR = reprlib.Repr()
_REPR.maxlist, _REPR.maxstring, _REPR.maxlong, _REPR.maxother = 8, 100, 40, 100
"""Shows the beginning of a value without writing all of it, which may be megabytes."""


def _fail(name: str, value: object, allowed: str) -> None:
    raise ParameterError(f"{name} must be {allowed}, got {_REPR.repr(value)}", name)


def _check_count(name: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise ParameterError(f"{name} must be at most {most} {what}, got {count}", name)


def _check_numbers(p: SamplingParams) -> None:
    ranges: tuple[tuple[str, float, float], ...] = (
        ("temperature", 0.0, 2.0),
        ("min_p", 0.0, 1.0),
        ("presence_penalty", -2.0, 2.0),
        ("frequency_penalty", -2.0, 2.0),
        ("repetition_penalty", MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
    )
    for name, low, high in ranges:
        value = getattr(p, name)
        if not low <= value <= high:  # also false for NaN
            _fail(name, value, f"between {low:g} and {high:g}")
    if not 0.0 < p.top_p <= 1.0:
        _fail("top_p", p.top_p, "above 0 and at most 1")
    if p.top_k < -1:
        _fail("top_k", p.top_k, "-1 or 0 (off), or at least 1")
    if p.seed is not None and not -(2**63) <= p.seed < 2**64:
        _fail("seed", p.seed, "a 64-bit integer")


def _check_lengths(p: SamplingParams) -> None:
    if not 1 <= p.n <= MAX_N:
        _fail("n", p.n, f"between 1 and {MAX_N}")
    if p.n > 1 and p.greedy:
        _fail("n", p.n, "1 with temperature 0")
    if p.max_tokens is not None and p.max_tokens < 1:
        _fail("max_tokens", p.max_tokens, "at least 1")
    if p.min_tokens < 0 or (p.max_tokens is not None and p.min_tokens > p.max_tokens):
        _fail("min_tokens", p.min_tokens, f"between 0 and max_tokens ({p.max_tokens})")


def _check_logprobs(p: SamplingParams) -> None:
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(p, name)
        if value is not None and value < ALL_LOGPROBS:
            _fail(name, value, "at least 0, or -1 for the whole vocabulary")
    if p.logprob_token_ids is not None and not p.logprob_token_ids:
        _fail("logprob_token_ids", p.logprob_token_ids, "non-empty")
    _check_count("logprob_token_ids", len(p.logprob_token_ids or ()), MAX_LOGPROB_TOKEN_IDS, "token ids")


def _check_stops(p: SamplingParams) -> None:
    _check_count("stop", len(p.stop), MAX_STOP_STRINGS, "strings")
    if not all(p.stop):
        _fail("stop", p.stop, "a list of non-empty strings")
    if p.stop and not p.detokenize:
        _fail("stop", p.stop, "empty without detokenize")
    _check_count("stop_token_ids", len(p.stop_token_ids), MAX_STOP_TOKEN_IDS, "token ids")
    detection = p.repetition_detection
    if detection is not None and not (1 <= detection.min_size <= detection.max_size <= 4096 and detection.min_count >= 2):
        _fail("repetition_detection", detection, "sizes with 1 <= min_size <= max_size <= 4096 and min_count >= 2")


def _check_token_sets(p: SamplingParams) -> None:
    _check_count("bad_words", len(p.bad_words), MAX_BAD_WORDS, "strings")
    if not all(p.bad_words):
        _fail("bad_words", p.bad_words, "a list of non-empty strings")
    _check_count("bad_words", sum(map(len, p.bad_words)), MAX_BAD_WORDS_CHARACTERS, "characters in all")
    _check_count("logit_bias", len(p.logit_bias or ()), MAX_LOGIT_BIAS_TOKENS, "entries")
    for value in (p.logit_bias or {}).values():
        if not -100.0 <= value <= 100.0:
            _fail("logit_bias", value, "between -100 and 100")
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        _fail("allowed_token_ids", p.allowed_token_ids, "non-empty")


_CHECKS: tuple[Callable[[SamplingParams], None], ...] = (_check_numbers, _check_lengths, _check_logprobs, _check_stops, _check_token_sets)
