"""Request: one request inside the engine core, from ADD to its end."""

import enum
import sys
import time
from collections.abc import Iterable

from stoker_engine.core.block_hash import BlockHasher
from stoker_engine.core.grammar import Grammar
from stoker_engine.errors import EngineGenerateError, ParameterError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EngineCoreEvent, EngineCoreEventType, EngineCoreRequest, PrefillStats


class DuplicateRequestError(EngineGenerateError):
    """A request came with the id of one that still lives. The newcomer fails, the other goes on."""


class RequestStatus(enum.IntEnum):
    """Where a request is in its life. Everything after PREEMPTED is an end."""

    WAITING_FOR_GRAMMAR = 0
    WAITING = 1
    RUNNING = 2
    PREEMPTED = 3
    FINISHED_STOPPED = 4
    FINISHED_LENGTH_CAPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_ERROR = 7
    FINISHED_REPETITION = 8

    @property
    def finish_reason(self) -> FinishReason | None:
        """None while the request lives."""
        return _FINISH_REASONS.get(self)


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
    RequestStatus.FINISHED_REPETITION: FinishReason.REPETITION,
}


class TokenSequence:
    """The prompt and what was sampled after it, with the hashes of its full blocks where they may be shared."""

    __slots__ = ("_hash_root", "_hasher", "block_hashes", "num_prompt_tokens", "token_ids")

    def __init__(self, prompt_token_ids: Iterable[int], hasher: BlockHasher | None, cache_salt: str | None) -> None:
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.block_hashes: list[bytes] = []
        self._hasher = hasher
        self._hash_root = b"" if hasher is None else hasher.root(cache_salt)
        self.hash_full_blocks()

    @property
    def is_hashed(self) -> bool:
        return self._hasher is not None

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    def hash_full_blocks(self) -> None:
        """Brings `block_hashes` up to the last full block."""
        if self._hasher is not None:
            self._hasher(self.block_hashes, self._hash_root, self.token_ids)


class Request:
    """State of one request. `num_computed_tokens` of its tokens have their KV in the cache, or will have after the steps under way.

    `num_tokens` are known; steps under way will sample `num_output_placeholders` more.
    """

    __slots__ = (
        "client_index",
        "end_token_ids",
        "events",
        "grammar",
        "max_num_tokens",
        "num_computed_tokens",
        "num_output_placeholders",
        "num_preemptions",
        "num_tokens",
        "prefill_stats",
        "request_id",
        "sequence",
        "status",
        "stop_reason",
        "wire",
    )

    def __init__(self, wire: EngineCoreRequest, sequence: TokenSequence) -> None:
        params = wire.sampling_params
        self.request_id = wire.request_id
        self.client_index = wire.client_index
        self.wire = wire
        self.sequence = sequence
        self.num_tokens = len(sequence.token_ids)
        self.max_num_tokens = sys.maxsize if params.max_tokens is None else self.num_tokens + params.max_tokens
        self.end_token_ids = frozenset((*wire.eos_token_ids, *params.stop_token_ids))
        self.num_computed_tokens = 0
        self.num_output_placeholders = 0
        self.grammar: Grammar | None = None
        self.status = RequestStatus.WAITING
        self.stop_reason: int | str | None = None
        self.num_preemptions = 0
        self.events: list[EngineCoreEvent] = []
        self.prefill_stats: PrefillStats | None = None

    @classmethod
    def from_engine_core_request(cls, request: EngineCoreRequest, hasher: BlockHasher | None) -> "Request":
        """The scheduler's view of `request`, its prompt hashed. Raises ParameterError for an empty prompt or an id that cannot be a token's."""
        if not request.prompt_token_ids:
            raise ParameterError("the prompt is empty", "prompt")
        return cls(request, TokenSequence(request.prompt_token_ids, hasher, request.cache_salt))

    @property
    def num_prompt_tokens(self) -> int:
        return self.sequence.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.sequence.num_prompt_tokens

    @property
    def reads_prefix_cache(self) -> bool:
        """Prompt log probabilities need every position's logits, so such a request computes its whole prompt."""
        params = self.wire.sampling_params
        return self.sequence.is_hashed and params.prompt_logprobs is None and not params.skip_reading_prefix_cache

    def append_token(self, token_id: int) -> None:
        self.sequence.token_ids.append(token_id)
        self.num_tokens += 1

    def preempt(self) -> None:
        """Everything is to be computed again; the tokens sampled so far stay, and those that steps under way sample will be added."""
        self.status = RequestStatus.PREEMPTED
        self.num_computed_tokens = 0
        self.num_preemptions += 1
        self.record_event(EngineCoreEventType.PREEMPTED)

    def record_event(self, event_type: EngineCoreEventType) -> None:
        self.events.append(EngineCoreEvent(event_type, time.monotonic()))

    def take_events(self) -> list[EngineCoreEvent] | None:
        """The events since the last call, to travel with the next output."""
        if not self.events:
            return None
        events, self.events = self.events, []
        return events

    def take_prefill_stats(self) -> PrefillStats | None:
        stats, self.prefill_stats = self.prefill_stats, None
        return stats
