"""RequestState: what the frontend knows of one engine request between two of its outputs."""

from collections.abc import Sequence

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.detokenizer import Detokenizer
from stoker_engine.frontend.logprobs import LogprobsProcessor
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.frontend.request_times import RequestTimes
from stoker_engine.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from stoker_engine.protocol import EngineCoreOutput, EngineCoreRequest
from stoker_engine.sampling_params import RequestOutputKind
from stoker_engine.stats import FinishedRequestStats
from stoker_engine.tokenizer import Tokenizer


class RequestState:
    """One engine request: a whole request, or choice `index` of `parent`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        request: EngineCoreRequest,
        prompt: str | None,
        parent: ParentRequest | None,
        index: int,
        queue: RequestOutputCollector | None,
    ) -> None:
        params = request.sampling_params
        self.request = request
        self.parent = parent
        self.queue = queue
        self.finish_reason: FinishReason | None = None
        self.times = RequestTimes(request.arrival_time)
        self._prompt = prompt
        self._index = index
        self._stop_reason: int | str | None = None
        self._failure_message: str | None = None
        self._token_ids: list[int] = []
        self._num_sent_tokens = 0
        self._num_cached_tokens = 0
        self._detokenizer = Detokenizer(tokenizer, request.prompt_token_ids, params) if params.detokenize else None
        wants_logprobs = params.logprobs is not None or params.logprob_token_ids is not None or params.prompt_logprobs is not None
        self._logprobs = LogprobsProcessor(tokenizer, request.prompt_token_ids, params) if wants_logprobs else None
        self._prompt_logprobs: Sequence[PositionLogprobs | None] | None = None

    def append(self, output: EngineCoreOutput) -> None:
        """Take one output of the engine; a stop string in it ends the request."""
        if output.prefill_stats is not None:
            self._num_cached_tokens = output.prefill_stats.num_cached_tokens
        self._append_logprobs(output)
        self._token_ids.extend(output.new_token_ids)
        stop = self._append_text(output)
        if stop is not None:
            self.finish_reason, self._stop_reason = FinishReason.STOP, stop
        elif output.finish_reason is not None:
            self.finish(output.finish_reason, output.stop_reason)

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """The request ends here, not by a stop string."""
        self.finish_reason, self._stop_reason = reason, stop_reason
        if self._detokenizer is not None:
            self._detokenizer.finish()

    def fail(self, message: str) -> None:
        """The request ends here, by a failure of its own."""
        self._failure_message = message
        self.finish(FinishReason.ERROR)

    def make_output(self) -> RequestOutput | None:
        """What is new, or all so far, by the request's output kind; None if there is nothing to say yet."""
        kind = self.request.sampling_params.output_kind
        num_shown_tokens = len(self._token_ids) if self._detokenizer is None else self._detokenizer.num_shown_tokens
        if self.finish_reason is None and kind is RequestOutputKind.FINAL_ONLY:
            return None
        completion = self._make_completion(kind, num_shown_tokens)
        if self.finish_reason is None and not completion.text and num_shown_tokens == self._num_sent_tokens:
            return None
        self._num_sent_tokens = num_shown_tokens
        prompt_logprobs = self._prompt_logprobs
        if kind is RequestOutputKind.DELTA:
            self._prompt_logprobs = None
        output = RequestOutput(
            request_id=self.request.external_request_id or self.request.request_id,
            prompt=self._prompt,
            prompt_token_ids=self.request.prompt_token_ids,
            outputs=[completion],
            finished=self.finish_reason is not None,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=len(self._token_ids),
            prompt_logprobs=prompt_logprobs,
            failure_message=self._failure_message,
            trace_headers=self.request.trace_headers,
        )
        return output if self.parent is None else self.parent.combine(output)

    def finished_stats(self, reason: FinishReason, now: float) -> FinishedRequestStats:
        """The numbers of this request, which ends at `now` on the wall clock."""
        return FinishedRequestStats(
            finish_reason=reason,
            num_prompt_tokens=len(self.request.prompt_token_ids),
            num_cached_tokens=self._num_cached_tokens,
            num_generation_tokens=len(self._token_ids),
            max_tokens=self.request.sampling_params.max_tokens,
            n=1 if self.parent is None else self.parent.n,
            e2e_latency=now - self.times.arrival,
            queue_time=self.times.queue_time,
            prefill_time=self.times.prefill_time,
            inference_time=self.times.inference_time,
            decode_time=self.times.decode_time,
            arrival=self.times.arrival,
            time_to_first_token=self.times.time_to_first_token,
        )

    def _append_logprobs(self, output: EngineCoreOutput) -> None:
        if self._logprobs is None:
            return
        if output.new_logprobs is not None:
            self._logprobs.append(output.new_logprobs)
        if self.request.sampling_params.prompt_logprobs is not None and output.new_token_ids and not self._token_ids:
            self._prompt_logprobs = self._logprobs.prompt_positions(output.new_prompt_logprobs)

    def _append_text(self, output: EngineCoreOutput) -> str | None:
        """The stop string that ends the request, if one does."""
        if self._detokenizer is None:
            return None
        silent = output.finish_reason is FinishReason.STOP and bool(output.new_token_ids) and self._is_silent_stop(output.new_token_ids[-1])
        stop = self._detokenizer.append(output.new_token_ids[:-1] if silent else output.new_token_ids)
        if silent and stop is None:
            self._detokenizer.append_silently()
        return stop

    def _is_silent_stop(self, token_id: int) -> bool:
        """Whether a last token is the stop token itself, whose text is not part of the answer. A grammar may end with a token of the answer."""
        params = self.request.sampling_params
        if params.include_stop_str_in_output:
            return False
        return params.structured_outputs is None or token_id in self.request.eos_token_ids or token_id in params.stop_token_ids

    def _make_completion(self, kind: RequestOutputKind, num_shown_tokens: int) -> CompletionOutput:
        start = self._num_sent_tokens if kind is RequestOutputKind.DELTA else 0
        completion = CompletionOutput(
            index=self._index,
            text="",
            token_ids=self._token_ids[start:num_shown_tokens],
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason,
        )
        if self._detokenizer is not None:
            completion.text = self._detokenizer.take_text() if kind is RequestOutputKind.DELTA else self._detokenizer.text()
        params = self.request.sampling_params
        if self._logprobs is not None and (params.logprobs is not None or params.logprob_token_ids is not None):
            completion.logprobs = self._logprobs.positions[start:num_shown_tokens]
            completion.cumulative_logprob = self._logprobs.cumulative_logprob(num_shown_tokens)
        return completion
