"""AsyncLLM: prompts in, a stream of RequestOutputs out, over an engine in another process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any

from stoker_engine.errors import EngineDeadError, EngineNotReadyError
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.engine_control import EngineControl
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.frontend.input_processor import MAX_INLINE_WORK, InputProcessor, Prompt, RequestOptions, processing_work
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreReadyResponse, EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.stats import IterationStats, SchedulerStats, StatLogger
from stoker_engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class AsyncLLM:
    """One per api. `start` takes the socket directory; engines may come, die and come back behind it. Lives in one event loop."""

    def __init__(self, config: ClientConfig, tokenizer: Tokenizer, stat_loggers: Sequence[StatLogger]) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._stat_loggers = stat_loggers
        self._output_processor = OutputProcessor(tokenizer)
        self._input_processor: tuple[EngineCoreReadyResponse, InputProcessor] | None = None
        self._client: AsyncMPClient | None = None
        self._handler: asyncio.Task[None] | None = None
        self._live: set[str] = set()
        self._num_aborted_all = 0
        self._failure: asyncio.Future[BaseException] | None = None
        self.control: EngineControl[Awaitable[None], Awaitable[bool]] = EngineControl(self.call_utility)

    async def start(self) -> None:
        """Binds the sockets and returns at once. Raises SocketDirectoryError where it cannot."""
        self._failure = asyncio.get_running_loop().create_future()
        self._client = AsyncMPClient(self._config)
        self._handler = asyncio.create_task(self._handle_outputs(self._client))
        for task in (self._handler, *self._client.tasks):
            task.add_done_callback(self._task_ended)

    async def failure(self) -> BaseException:
        """Waits for a fault in this client itself. It serves nobody any more; the process should end."""
        if self._failure is None:
            raise RuntimeError("failure() is for after start()")
        return await asyncio.shield(self._failure)

    @property
    def status(self) -> EngineStatus:
        return self._client.status if self._client is not None else EngineStatus()

    @property
    def is_ready(self) -> bool:
        """Requests are taken."""
        return self._client is not None and self._client.is_ready and self._failure is not None and not self._failure.done()

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Calls a method of the engine. Raises EngineNotReadyError, EngineDeadError, or EngineGenerateError with the engine's words."""
        if self._client is None:
            raise EngineNotReadyError(self.status.explanation)
        return await self._client.call_utility(method, *args)

    @property
    def num_requests(self) -> int:
        """Requests whose last output has not been taken yet."""
        return len(self._live)

    async def generate(self, prompt: Prompt, sampling_params: SamplingParams, options: RequestOptions) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one request, by its `output_kind`; closing the generator aborts it.

        Before the first output: ParameterError or ContextLengthError for what is wrong with the request, EngineNotReadyError where no engine
        serves. Later: EngineGenerateError where this request failed, EngineDeadError where its engine went away.
        """
        client = self._ready_client()
        num_aborted_all = self._num_aborted_all
        request = await self._process(prompt, sampling_params, options)
        if num_aborted_all != self._num_aborted_all:
            raise EngineNotReadyError("every request was aborted")
        parent = ParentRequest(request) if request.sampling_params.n > 1 else None
        request_id = request.request_id
        collector = RequestOutputCollector(sampling_params.output_kind)
        text = _text_of(prompt)
        self._live.add(request_id)
        try:
            for index, child in enumerate(parent.child_requests() if parent is not None else [request]):
                self._output_processor.add_request(child, text, parent, index, collector)
                await client.add_request(child)
            finished = False
            while not finished:
                output = await collector.get()
                finished = output.finished
                yield output
        finally:
            # Nothing is left to abort where the request has ended by itself.
            self._live.discard(request_id)
            await self._abort(client, [request_id])

    async def abort_all(self) -> None:
        """Every live request ends with FinishReason.ABORT; one that is still being tokenized ends with EngineNotReadyError."""
        self._num_aborted_all += 1
        if self._client is not None:
            await self._abort(self._client, list(self._live))

    async def shutdown(self) -> None:
        """Ends what is live with EngineDeadError and closes the sockets. Idempotent."""
        client, self._client = self._client, None
        if client is None or self._handler is None:
            return
        self._handler.cancel()
        await asyncio.gather(self._handler, return_exceptions=True)
        self._output_processor.fail_all_requests(EngineDeadError("the api is shut down"))
        await client.shutdown()

    async def _abort(self, client: AsyncMPClient, request_ids: list[str]) -> None:
        aborted = self._output_processor.abort_requests(request_ids)
        if aborted:
            await client.abort_requests(aborted)
            self._record(None, self._output_processor.take_iteration_stats())

    def _record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        for stat_logger in self._stat_loggers:
            stat_logger.record(scheduler_stats, iteration_stats)

    def _ready_client(self) -> AsyncMPClient:
        if self._client is None or not self.is_ready:
            raise EngineNotReadyError(self.status.explanation)
        return self._client

    async def _process(self, prompt: Prompt, params: SamplingParams, options: RequestOptions) -> EngineCoreRequest:
        processor = self._current_input_processor()
        if processing_work(prompt, params) > MAX_INLINE_WORK:
            return await asyncio.to_thread(processor.process, prompt, params, options)
        return processor.process(prompt, params, options)

    def _current_input_processor(self) -> InputProcessor:
        """Checks requests against the engine there is now; another engine may have another capacity."""
        ready = self.status.ready
        if ready is None:
            raise EngineNotReadyError(self.status.explanation)
        if self._input_processor is None or self._input_processor[0] is not ready:
            processor = InputProcessor(
                self._tokenizer, ready.max_model_len, ready.max_logprobs, ready.vocab_size, priority_scheduling=ready.priority_scheduling
            )
            self._input_processor = ready, processor
        return self._input_processor[1]

    async def _handle_outputs(self, client: AsyncMPClient) -> None:
        while True:
            try:
                outputs = await client.get_output()
            except EngineDeadError as error:
                self._output_processor.fail_all_requests(error)
                self._record(None, self._output_processor.take_iteration_stats())
                continue
            processed = self._output_processor.process_outputs(outputs)
            await client.abort_requests(processed.request_ids_to_abort)
            self._record(outputs.scheduler_stats, processed.iteration_stats)
            # A backlog of messages must not keep the event loop from its other work.
            await asyncio.sleep(0)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Tasks only end by cancellation; anything else is a fault that must not leave anyone waiting."""
        if task.cancelled():
            return
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        logger.critical("the engine client failed", exc_info=error)
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)
        self._output_processor.fail_all_requests(EngineDeadError(f"the api failed: {error}"))


def _text_of(prompt: Prompt) -> str | None:
    if isinstance(prompt, list):
        return None
    return prompt if isinstance(prompt, str) else prompt.text
