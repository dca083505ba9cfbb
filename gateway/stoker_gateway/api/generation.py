"""What chat completions and completions share: options of the engine request, and running it under the client's eyes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from starlette.datastructures import Headers

from stoker_engine.errors import EngineGenerateError, EngineNotReadyError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.input_processor import MAX_INLINE_WORK, RequestOptions
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.version import __version__
from stoker_gateway.api.request_record import current_record
from stoker_gateway.http.trace_headers import trace_headers
from stoker_gateway.openai.request import GenerationRequest

ResultT = TypeVar("ResultT")

SYSTEM_FINGERPRINT = f"stoker-{__version__}"
_POSITION_SIZE = 64
"""Characters that take as long to tokenize as one position's log probabilities to write."""


def request_options(request: GenerationRequest, headers: Headers, request_id: str) -> RequestOptions:
    """The W3C's trace headers travel with the request, and its numbers come to the record of the HTTP request."""
    record = current_record()
    if record is not None:
        record.request = request
        record.response_id = record.response_id or request_id
    return RequestOptions(
        request_id=request_id,
        priority=request.priority,
        cache_salt=request.cache_salt,
        trace_headers=trace_headers(headers) or None,
        finished=None if record is None else record.finished,
    )


async def off_loop_if_long(size: int, work: Callable[[], ResultT]) -> ResultT:
    """Runs `work` where a long input, of `size` characters or entries, does not keep other requests and probes waiting."""
    return work() if size <= MAX_INLINE_WORK else await asyncio.to_thread(work)


def reading_size(body: bytes) -> int:
    """What it costs to decode or to render a request, as a size for `off_loop_if_long`: a millisecond for 8 KiB of the shortest messages, and for text far
    less than the way to a thread and back. To find its tokens costs more: there the size is the text's own.
    """
    return len(body) // 2


def prompt_logprobs_size(output: RequestOutput) -> int:
    """What it costs to show the prompt's log probabilities in the output's choices, as a size for `off_loop_if_long`."""
    return _POSITION_SIZE * len(output.prompt_logprobs or ()) * len(output.outputs)


async def last_output(outputs: AsyncGenerator[RequestOutput]) -> RequestOutput:
    """The output of a request with FINAL_ONLY. Raises EngineGenerateError if the request ended without one."""
    last: RequestOutput | None = None
    async for output in outputs:
        last = output
    if last is None or not last.finished:
        raise EngineGenerateError("The request ended without an answer.")
    return last


def finish_name(output: CompletionOutput) -> str | None:
    """The choice's finish_reason, None while it goes on. Raises EngineGenerateError for a choice that failed."""
    if output.finish_reason is None:
        return None
    if output.finish_reason is FinishReason.ERROR:
        raise EngineGenerateError("The engine failed to generate this answer.")
    return str(output.finish_reason)


def aborted() -> EngineNotReadyError:
    """For the client of a stream, which may not look at the finish reason: half an answer is not to pass for a whole one."""
    return EngineNotReadyError("The answer was cut short: the server stops, or was told to end it. Try again.")
