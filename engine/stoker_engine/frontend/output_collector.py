"""RequestOutputCollector: hands one request's outputs from the output handler to its consumer, merging what the consumer has not fetched yet."""

import asyncio

from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.sampling_params import RequestOutputKind
from stoker_engine.stats import FinishedRequestStats


class RequestOutputCollector:
    """One slot. DELTA outputs that wait in it are joined, others replaced by choice; an exception comes after the outputs before it.

    `finished` gets the numbers of each choice as it ends, whoever still listens. Lives inside one event loop, and has one consumer.
    """

    def __init__(self, output_kind: RequestOutputKind, finished: list[FinishedRequestStats] | None = None) -> None:
        self.finished: list[FinishedRequestStats] = [] if finished is None else finished
        self._joins = output_kind is RequestOutputKind.DELTA
        self._waiting: list[RequestOutput] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: RequestOutput | Exception) -> None:
        if isinstance(item, Exception):
            self._error = self._error or item
        elif self._joins or not self._waiting:
            self._waiting.append(item)
        else:
            self._waiting = [_replace(self._waiting[0], item)]
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> RequestOutput:
        """The next output, waited for. Raises the exception that was put, once the outputs before it are fetched."""
        while True:
            output = self.get_nowait()
            if output is not None:
                return output
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def get_nowait(self) -> RequestOutput | None:
        """The next output, or None if there is none yet. Raises as `get`."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return join_deltas(waiting)
        if self._error is not None:
            raise self._error
        return None


def join_deltas(outputs: list[RequestOutput]) -> RequestOutput:
    """The last output, with the deltas of all."""
    if len(outputs) == 1:
        return outputs[0]
    last = outputs[-1]
    deltas_by_index: dict[int, list[CompletionOutput]] = {}
    for output in outputs:
        for completion in output.outputs:
            deltas_by_index.setdefault(completion.index, []).append(completion)
    last.outputs = [_join_completions(deltas) for deltas in deltas_by_index.values()]
    last.prompt_logprobs = next((output.prompt_logprobs for output in outputs if output.prompt_logprobs is not None), None)
    return last


def _join_completions(deltas: list[CompletionOutput]) -> CompletionOutput:
    last = deltas[-1]
    if len(deltas) > 1:
        last.text = "".join(delta.text for delta in deltas)
        last.token_ids = [token_id for delta in deltas for token_id in delta.token_ids]
        if last.logprobs is not None:
            last.logprobs = [position for delta in deltas for position in delta.logprobs or []]
    return last


def _replace(old: RequestOutput, new: RequestOutput) -> RequestOutput:
    """The new output, with the old one's choices that it does not have."""
    fresh = {completion.index for completion in new.outputs}
    new.outputs = [completion for completion in old.outputs if completion.index not in fresh] + new.outputs
    if new.prompt_logprobs is None:
        new.prompt_logprobs = old.prompt_logprobs
    return new
