"""What the frontend yields: RequestOutput with its CompletionOutputs."""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker_engine.finish_reason import FinishReason


@dataclass(slots=True, frozen=True)
class Logprob:
    """One token's log probability at one position. `token` is its text, `token_bytes` its UTF-8 bytes (perhaps part of a character)."""

    logprob: float
    rank: int | None
    token: str
    token_bytes: bytes


PositionLogprobs = dict[int, Logprob]
"""Token id → Logprob at one position; the sampled (or prompt) token comes first, then the most likely ones."""


@dataclass(slots=True)
class CompletionOutput:
    """One choice. `stop_reason` is the stop string or stop token id that matched, None for EOS. Lists of one output have equal lengths."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class RequestOutput:
    """What a request has produced: all so far, or what is new, by its `output_kind`. `prompt_logprobs[0]` is None.

    With DELTA the prompt's log probabilities come with the first output of each choice.

    `num_output_tokens` counts every sampled token of all choices so far, also those whose text is held back or cut by a stop string.
    `failure_message` says why with FinishReason.ERROR, where it is not raised. `trace_headers` are the request's own.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    prompt_logprobs: Sequence[PositionLogprobs | None] | None = None
    failure_message: str | None = None
    trace_headers: dict[str, str] | None = None
