"""Room: what a response that is made in the background takes of the store, charged while it grows."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from stoker_engine.errors import QueueFullError
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.responses.store import ResponseStore, StoredResponse, conversation_bytes
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.protocol import encode

_TOKEN_BYTES = 16
_EVENT_BYTES = 400
_LOGPROB_BYTES = 100
"""What a token's text takes, its event in a stream, and a log probability, each of these once."""
_COPIES = 2
_LOGPROB_COPIES = 1
_LAST_EVENTS = 4
"""An answer's text is in the response and in the conversation, its log probabilities in the response, and both in the events that end a stream."""
_WHOLE_EVENTS = 4
"""Those that show the whole response: created, queued, in_progress and the last."""


class Room:
    """Of `stored`, which has its `events` already where it is a stream."""

    def __init__(self, store: ResponseStore, stored: StoredResponse, params: SamplingParams) -> None:
        self._store = store
        self._stored = stored
        self._num_last_events = 0 if stored.events is None else _LAST_EVENTS
        self._num_logprobs = 0 if params.logprobs is None else 1 + params.logprobs

    def reserve(self) -> None:
        """Keeps it, with all but its answer. Raises ApiError: 400 where it could never be kept, 429 where others that are being made leave no room."""
        num_events = 0 if self._stored.events is None else _WHOLE_EVENTS
        num_bytes = conversation_bytes(self._stored.conversation) + (1 + num_events) * len(encode(self._stored.response))
        most = (self._store.max_bytes - num_bytes) // self._bytes_per_token()
        if most < 1:
            raise ApiError("The request is too large to be answered in the background; send it without background.", param="background")
        asked = self._stored.response.max_output_tokens
        if asked is not None and asked > most:
            message = f"max_output_tokens must be at most {most} for this request in the background: no more can be kept. It is {asked}."
            raise ApiError(message, param="max_output_tokens")
        self._stored.num_bytes = num_bytes
        self._store.put_running(self._stored)

    async def charged(self, outputs: AsyncGenerator[RequestOutput]) -> AsyncGenerator[RequestOutput]:
        """The outputs. Raises QueueFullError, and closes them, where what has come finds no room any more."""
        logged = self._logged()
        async with aclosing(outputs):
            async for output in outputs:
                yield output
                if self._stored.is_over:
                    continue
                before, logged = logged, self._logged()
                if not self._store.grow(self._stored, logged - before + sum(map(self._answer_bytes, output.outputs))):
                    raise QueueFullError("The answer was cut short: no more of it can be kept. Ask for less by max_output_tokens, or without background.")

    def _logged(self) -> int:
        return 0 if self._stored.events is None else self._stored.events.num_bytes

    def _answer_bytes(self, output: CompletionOutput) -> int:
        return (_COPIES + self._num_last_events) * len(output.text.encode()) + len(output.token_ids) * self._logprob_bytes_per_token()

    def _logprob_bytes_per_token(self) -> int:
        return (_LOGPROB_COPIES + self._num_last_events) * self._num_logprobs * _LOGPROB_BYTES

    def _bytes_per_token(self) -> int:
        """About the most."""
        num_bytes = (_COPIES + self._num_last_events) * _TOKEN_BYTES + self._logprob_bytes_per_token()
        return num_bytes if self._stored.events is None else num_bytes + _EVENT_BYTES + self._num_logprobs * _LOGPROB_BYTES
