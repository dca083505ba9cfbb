"""ParentRequest: one request for several choices, run as one engine request each."""

import copy
from collections.abc import Sequence

import msgspec

from stoker_engine.frontend.output_collector import join_deltas
from stoker_engine.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import RequestOutputKind


class ParentRequest:
    """A request with n > 1. `request_id` is internal; `child_request_ids[i]` runs choice i."""

    def __init__(self, request: EngineCoreRequest) -> None:
        self.request_id = request.request_id
        self.n = request.sampling_params.n
        self.child_request_ids = [f"{index}_{request.request_id}" for index in range(self.n)]
        self._request = request
        self._gives_deltas = request.sampling_params.output_kind is RequestOutputKind.DELTA
        self._finals_only = request.sampling_params.output_kind is RequestOutputKind.FINAL_ONLY
        self._finished: dict[int, CompletionOutput] = {}
        self._num_output_tokens: dict[int, int] = {}
        self._num_cached_tokens: dict[int, int] = {}
        self._prompt_logprobs: Sequence[PositionLogprobs | None] | None = None
        self._failure_message: str | None = None
        # Choice 0 brings the prompt's log probabilities for all: the deltas of others wait for its first.
        self._awaits_first = self._gives_deltas and request.sampling_params.prompt_logprobs is not None
        self._held: list[RequestOutput] = []

    def child_requests(self) -> list[EngineCoreRequest]:
        """One request for each choice, to be sent in this order; they share the prompt. To be called once: the last one is the parent's own object."""
        params = self._request.sampling_params
        requests = []
        for index, request_id in enumerate(self.child_request_ids):
            request = self._request if index == self.n - 1 else copy.copy(self._request)
            request.request_id = request_id
            request.sampling_params = msgspec.structs.replace(
                params,
                n=1,
                seed=None if params.seed is None else params.seed + index,
                # The prompt is the same for all: to compute it once is enough.
                prompt_logprobs=params.prompt_logprobs if index == 0 else None,
            )
            requests.append(request)
        return requests

    def combine(self, output: RequestOutput) -> RequestOutput | None:
        """One child's output as the parent's, with the prompt's log probabilities as in a request of its own.

        FINAL_ONLY gives nothing before the last child's end, then all choices in order.
        """
        (completion,) = output.outputs
        is_first = completion.index not in self._num_output_tokens
        self._num_output_tokens[completion.index] = output.num_output_tokens
        self._num_cached_tokens[completion.index] = output.num_cached_tokens
        if completion.finish_reason is not None:
            self._finished[completion.index] = completion
        output.finished = len(self._finished) == self.n
        output.num_output_tokens = sum(self._num_output_tokens.values())
        # Later children find the prompt cached by the first; what the request as a whole found is the least.
        output.num_cached_tokens = min(self._num_cached_tokens.values())
        output.failure_message = self._failure_message = self._failure_message or output.failure_message
        self._prompt_logprobs = self._prompt_logprobs or output.prompt_logprobs
        output.prompt_logprobs = self._prompt_logprobs if is_first or not self._gives_deltas else None
        if self._awaits_first:
            return self._hold(output, completion.index)
        if not self._finals_only:
            return output
        if not output.finished:
            return None
        output.outputs = [self._finished[index] for index in range(self.n)]
        return output

    def _hold(self, output: RequestOutput, index: int) -> RequestOutput | None:
        """Collects outputs until the first of choice 0; with it, all of them."""
        self._held.append(output)
        if index != 0:
            return None
        self._awaits_first = False
        held, self._held = self._held, []
        return join_deltas(held)
