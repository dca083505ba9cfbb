"""AsyncLLM: prompts in, a stream of RequestOutputs out, over an engine in another process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any

from stoker_engine.errors import EngineDeadError, EngineNotReadyError, RequestTimeoutError
from stoker_engine.frontend.admission import Admission, QueueLimits
from stoker_engine.frontend.clients.async_mp import AsyncMPClient
from stoker_engine.frontend.clients.base import ClientConfig, EngineCoreClient
from stoker_engine.frontend.engine_control import EngineControl
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.frontend.input_processor import MAX_INLINE_WORK, MAX_INLINE_WORK_ALONE, InputProcessor, RequestOptions, processing_work
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.output_handler import OutputHandler
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.frontend.ready_request import unpack_request
from stoker_engine.frontend.renderer import Prompt, Renderer, prompt_text
from stoker_engine.frontend.stat_loggers import StatLoggerManager
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreReadyResponse, EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.stats import StatLogger
from stoker_engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class AsyncLLM:
    """One per api. `start` takes the socket directory; engines may come, die and come back behind it. Lives in one event loop.

    A request that takes longer than `request_timeout` seconds from its start ends with RequestTimeoutError.
    """

    def __init__(
        self,
        config: ClientConfig,
        tokenizer: Tokenizer,
        stat_loggers: Sequence[StatLogger],
        queue_limits: QueueLimits | None = None,
        request_timeout: float | None = None,
    ) -> None:
        self._config = config
        self._request_timeout = request_timeout
        self._tokenizer = tokenizer
        self._stat_loggers = StatLoggerManager(stat_loggers)
        self.renderer = Renderer(tokenizer)
        self._output_processor = OutputProcessor(tokenizer)
        self.admission = Admission(queue_limits or QueueLimits(), self._output_processor.queued)
        self._input_processor: tuple[EngineCoreReadyResponse, InputProcessor] | None = None
        self._client: AsyncMPClient | None = None
        self._handler: asyncio.Task[None] | None = None
        self._live: set[str] = set()
        self._aborting: set[asyncio.Future[None]] = set()
        self._num_aborted_all = 0
        self._failure: asyncio.Future[BaseException] | None = None
        self.control: EngineControl[Awaitable[None], Awaitable[bool]] = EngineControl(self.call_utility)

    async def start(self) -> None:
        """Binds the sockets and returns at once. Raises SocketDirectoryError where it cannot."""
        self._failure = asyncio.get_running_loop().create_future()
        self._client = EngineCoreClient.make_client(self._config, multiprocess_mode=True, asyncio_mode=True)
        self._handler = asyncio.create_task(OutputHandler(self._client, self._output_processor, self._stat_loggers).run())
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
        return self.is_linked and self.status.is_ready

    @property
    def is_linked(self) -> bool:
        """Requests are taken if `status` says so: a status is of one moment, and the next may be another."""
        return self._client is not None and self._client.is_linked and self._failure is not None and not self._failure.done()

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Calls a method of the engine. Raises EngineNotReadyError, EngineDeadError, or EngineGenerateError with the engine's words."""
        if self._client is None:
            raise EngineNotReadyError(self.status.explanation)
        return await self._client.call_utility(method, *args)

    @property
    def num_requests(self) -> int:
        """Requests whose last output has not been taken yet."""
        return len(self._live)

    async def check_health(self) -> None:
        """Raises EngineDeadError where the engine, or this client, is gone, EngineNotReadyError where it does not serve for another reason. Asks nobody:
        heartbeats have said it already."""
        if self._failure is not None and self._failure.done():
            raise EngineDeadError(f"the api failed: {self._failure.result()}")
        status = self.status
        if status.phase is not None and not status.is_connected:
            raise EngineDeadError(status.explanation)
        self._ready_client()

    async def generate(
        self, prompt: Prompt | EngineCoreRequest, sampling_params: SamplingParams, options: RequestOptions
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one request, by its `output_kind`; closing the generator aborts it. A ready EngineCoreRequest brings its own parameters and id.

        Before the first output: ParameterError or ContextLengthError for what is wrong with the request, EngineNotReadyError where no engine
        serves, QueueFullError where too much waits. Later: EngineGenerateError where this request failed, EngineDeadError where its engine went away,
        RequestTimeoutError where it took too long.
        """
        client = self._ready_client()
        started, finished_stats = asyncio.get_running_loop().time(), options.finished
        if isinstance(prompt, EngineCoreRequest):
            prompt, sampling_params, options = unpack_request(prompt, options.request_id)
        num_aborted_all = self._num_aborted_all
        request = await self.process(prompt, sampling_params, options)
        if num_aborted_all != self._num_aborted_all:
            raise EngineNotReadyError("every request was aborted")
        request_id = request.request_id
        collector = RequestOutputCollector(sampling_params.output_kind, finished_stats)
        timer = self._start_timer(started, collector)
        self._live.add(request_id)
        try:
            await self._add_request(client, request, prompt_text(prompt), collector)
            finished = False
            while not finished:
                output = await collector.get()
                finished = output.finished
                yield output
        finally:
            # Wherever it was cancelled: what is registered is forgotten, and what may have been sent is aborted. A request that has ended is neither.
            if timer is not None:
                timer.cancel()
            self._live.discard(request_id)
            await self._abort(client, [request_id])

    async def process(self, prompt: Prompt, sampling_params: SamplingParams, options: RequestOptions) -> EngineCoreRequest:
        """What `generate` would send for this. Raises what it raises before the first output; the queue is looked at before anything is tokenized."""
        self._ready_client()
        with self.admission.preparing(sampling_params.n):
            request = await self._process(prompt, sampling_params, options)
        self.admission.check_prefill_tokens(sampling_params.n * len(request.prompt_token_ids))
        return request

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
        await asyncio.gather(*self._aborting, return_exceptions=True)
        await client.shutdown()

    async def _add_request(self, client: AsyncMPClient, request: EngineCoreRequest, text: str | None, collector: RequestOutputCollector) -> None:
        parent = ParentRequest(request) if request.sampling_params.n > 1 else None
        for index, child in enumerate(parent.child_requests() if parent is not None else [request]):
            self._output_processor.add_request(child, text, parent, index, collector)
            await client.add_request(child)

    def _start_timer(self, started: float, collector: RequestOutputCollector) -> asyncio.TimerHandle | None:
        """One per request, not one per output: what it puts ends the request where its outputs are taken."""
        if self._request_timeout is None:
            return None
        error = RequestTimeoutError(f"The request took longer than {self._request_timeout:g} s, the most that this server allows.")
        return asyncio.get_running_loop().call_at(started + self._request_timeout, collector.put, error)

    async def _abort(self, client: AsyncMPClient, request_ids: list[str]) -> None:
        """Cancelled, it goes on: the engine would run for nobody."""
        aborted = self._output_processor.abort_requests(request_ids)
        if aborted:
            self._stat_loggers.record(None, self._output_processor.take_iteration_stats())
            sending = asyncio.ensure_future(client.abort_requests(aborted))
            self._aborting.add(sending)
            sending.add_done_callback(self._aborting.discard)
            await asyncio.shield(sending)

    def _ready_client(self) -> AsyncMPClient:
        if self._client is None or not self.is_ready:
            raise EngineNotReadyError(self.status.explanation)
        return self._client

    async def _process(self, prompt: Prompt, params: SamplingParams, options: RequestOptions) -> EngineCoreRequest:
        processor = self._current_input_processor()
        is_alone = not self._live and self.admission.num_preparing == params.n and params.structured_outputs is None and not params.bad_words
        if processing_work(prompt, params) > (MAX_INLINE_WORK_ALONE if is_alone else MAX_INLINE_WORK):
            return await asyncio.to_thread(processor.process, prompt, params, options)
        return processor.process(prompt, params, options)

    def _current_input_processor(self) -> InputProcessor:
        """Checks requests against the engine there is now; another engine may have another capacity."""
        ready = self.status.ready
        if ready is None:
            raise EngineNotReadyError(self.status.explanation)
        if self._input_processor is None or self._input_processor[0] is not ready:
            self._input_processor = ready, InputProcessor.for_engine(self._tokenizer, ready)
        return self._input_processor[1]

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Tasks only end by cancellation; anything else is a fault that must not leave anyone waiting."""
        if task.cancelled():
            return
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        logger.critical("the engine client failed", exc_info=error)
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)
        self._output_processor.fail_all_requests(EngineDeadError(f"the api failed: {error}"))
