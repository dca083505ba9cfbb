"""LLMEngine: the synchronous shell. Requests in, `step()` until they are done; the engine core is in another process, or in this one."""

import logging
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stoker_engine.batch_window import BatchWindow
from stoker_engine.config import EngineConfig, seconds
from stoker_engine.errors import EngineDeadError, EngineNotReadyError
from stoker_engine.frontend.clients.base import ClientConfig, EngineCoreClient
from stoker_engine.frontend.clients.inproc import InprocCore
from stoker_engine.frontend.clients.sync_mp import SyncMPClient
from stoker_engine.frontend.engine_control import EngineControl
from stoker_engine.frontend.input_processor import InputProcessor, RequestOptions
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.frontend.ready_request import unpack_request
from stoker_engine.frontend.renderer import Prompt, Renderer, prompt_text
from stoker_engine.frontend.stat_loggers import StatLoggerManager
from stoker_engine.launcher import ENGINE_PROGRAM, LaunchedEngine
from stoker_engine.model_fetch import fetch_tokenizer
from stoker_engine.model_files import is_on_hub, resolve_model
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.stats import StatLogger
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

logger = logging.getLogger(__name__)

STARTUP_GRACE_SECONDS = 5.0
"""The engine itself keeps startupTimeout, and says where it hung; a process that cannot even do that is given up after this."""
POLL_SECONDS = 0.01


class LLMEngine:
    """Belongs to one thread. `from_config` starts an engine; whether it runs in this process is fixed then. `process` is the engine's, if it has one.

    An engine that fails ends every call, this and later ones, with EngineDeadError. Closed by `shutdown`, at the latest at collection or exit.
    """

    def __init__(self, client: EngineCoreClient, tokenizer: Tokenizer, stat_loggers: Sequence[StatLogger] = (), process: LaunchedEngine | None = None) -> None:
        self._client = client
        self.process = process
        self._finalizer = weakref.finalize(self, _close, client, process)
        self.renderer = Renderer(tokenizer)
        self._input_processor = InputProcessor.for_engine(tokenizer, client.ready_response)
        self._output_processor = OutputProcessor(tokenizer)
        self._stat_loggers = StatLoggerManager(stat_loggers)
        self._failure: EngineDeadError | None = None

    @classmethod
    def from_config(cls, config: EngineConfig, *, multiprocess_mode: bool = True, stat_loggers: Sequence[StatLogger] = ()) -> "LLMEngine":
        """An engine of its own, READY. Raises ConfigError or ModelLoadError for what is wrong with the model or a setting, EngineDeadError where the
        engine's process ended otherwise: with its last words, exit code and signal."""
        path, config = _find_model(config)
        tokenizer = load_tokenizer(path)
        if multiprocess_mode:
            process, client = launch(config)
            return cls(client, tokenizer, stat_loggers, process)
        return cls(EngineCoreClient.make_client(lambda: _make_core(config), multiprocess_mode=False, asyncio_mode=False), tokenizer, stat_loggers)

    def add_request(
        self,
        request_id: str,
        prompt: Prompt | EngineCoreRequest,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> str:
        """Returns the request's internal id; its outputs carry `request_id`, which need not be unique. Either aborts it.

        A ready EngineCoreRequest brings its own id and parameters. Raises ParameterError or ContextLengthError for what is wrong with the request.
        """
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a str, got a {type(request_id).__name__}")
        if isinstance(prompt, EngineCoreRequest):
            prompt, params, options = unpack_request(prompt, request_id)
        else:
            options = RequestOptions(request_id=request_id, priority=priority, cache_salt=cache_salt, trace_headers=trace_headers)
        request = self._input_processor.process(prompt, params or SamplingParams(), options)
        return self._send(request, prompt_text(prompt))

    def abort_request(self, request_ids: Sequence[str]) -> None:
        """Ends requests by external or internal ids; unknown ones are ignored. Each one's last output, with FinishReason.ABORT, comes from `step`."""
        aborted = self._output_processor.abort_requests([request_ids] if isinstance(request_ids, str) else request_ids)
        self._client.abort_requests(aborted)

    def step(self) -> list[RequestOutput]:
        """Waits for the engine's next step, or computes it; what it gave, by each request's output kind.

        An empty list at once where nothing is unfinished, and within about a second where the engine computes nothing, being paused.
        """
        if self._output_processor.has_pending_outputs:
            processed = self._output_processor.begin_message()
            self._stat_loggers.record(None, processed.iteration_stats)
            return processed.request_outputs
        if not self._output_processor.num_requests:
            return []
        with self._fatal_to_all():
            outputs = self._client.get_output()
        processed = self._output_processor.process_outputs(outputs)
        # Stop strings are seen in the text, of which the core knows nothing.
        self._client.abort_requests(processed.request_ids_to_abort)
        self._stat_loggers.record(outputs.scheduler_stats, processed.iteration_stats)
        return processed.request_outputs

    @property
    def num_unfinished_requests(self) -> int:
        """Engine requests in flight; a request with n choices counts n at its start."""
        return self._output_processor.num_requests

    def has_unfinished_requests(self) -> bool:
        """`step` has more to give."""
        return self._output_processor.num_requests > 0 or self._output_processor.has_pending_outputs

    def generate(self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams], *, progress: bool = True) -> list[RequestOutput]:
        """The finished output of each prompt, in their order, by one SamplingParams for all or one for each; with a progress bar on stderr.

        Raises ParameterError before anything is computed. Whatever it raises, nothing of it goes on.
        """
        from stoker_engine.progress import RequestProgress  # its import takes 60 ms

        if self.has_unfinished_requests():
            raise RuntimeError(f"generate() needs the engine for itself: {self.num_unfinished_requests} requests are unfinished")
        waiting = self._check_batch(prompts, params)
        window = BatchWindow()
        finished: dict[str, RequestOutput] = {}
        try:
            with RequestProgress(len(prompts), enabled=progress) as bar:
                while waiting or self.has_unfinished_requests():
                    while waiting and window.has_room_for(waiting[0][0]):
                        request, text = waiting.popleft()
                        window.sent(request)
                        self._send(request, text)
                    for output in self.step():
                        window.finished(output)
                        finished[output.request_id] = output
                        bar.finished(output)
        except BaseException:
            self._withdraw([str(index) for index in range(len(prompts)) if str(index) not in finished])
            raise
        return [finished[str(index)] for index in range(len(prompts))]

    @property
    def control(self) -> EngineControl[None, bool]:
        """Pause, sleep, wake, reset and profile the engine."""
        return EngineControl(self.call_utility)  # kept, it would be a cycle that keeps the memory of a dropped engine

    def call_utility(self, method: str, *args: Any) -> Any:
        """Calls a method of the engine core. Raises EngineGenerateError with the engine's words if it fails."""
        with self._fatal_to_all():
            return self._client.call_utility(method, *args)

    def shutdown(self) -> None:
        """Ends the engine and returns its memory. Idempotent."""
        self._finalizer()
        self._failure = self._failure or EngineDeadError("the engine is shut down")
        self._output_processor.fail_all_requests(self._failure)
        self._output_processor.begin_message()

    def _check_batch(self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams]) -> deque[tuple[EngineCoreRequest, str | None]]:
        """All requests of a batch, each named by its place in it, with their texts."""
        all_params = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(all_params) != len(prompts):
            raise ValueError(f"there are {len(prompts)} prompts and {len(all_params)} SamplingParams")
        requests: deque[tuple[EngineCoreRequest, str | None]] = deque()
        for index, (prompt, own_params) in enumerate(zip(prompts, all_params, strict=True)):
            final_only = msgspec.structs.replace(own_params, output_kind=RequestOutputKind.FINAL_ONLY)
            requests.append((self._input_processor.process(prompt, final_only, RequestOptions(request_id=str(index))), prompt_text(prompt)))
        return requests

    def _send(self, request: EngineCoreRequest, text: str | None) -> str:
        """Registers a request and sends it, or neither. Returns its internal id."""
        internal_id = request.request_id
        parent = ParentRequest(request) if request.sampling_params.n > 1 else None
        try:
            for index, child in enumerate(parent.child_requests() if parent is not None else [request]):
                self._output_processor.add_request(child, text, parent, index, None)
                with self._fatal_to_all():
                    self._client.add_request(child)
        except BaseException:
            self._withdraw([internal_id])
            raise
        return internal_id

    def _withdraw(self, request_ids: Sequence[str]) -> None:
        """Ends requests whose outputs nobody wants any more."""
        self.abort_request(request_ids)
        self._stat_loggers.record(None, self._output_processor.begin_message().iteration_stats)

    @contextmanager
    def _fatal_to_all(self) -> Iterator[None]:
        """An engine of our own that dies stays dead: nobody starts another."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except (EngineDeadError, EngineNotReadyError) as error:
            if isinstance(error, EngineNotReadyError) and (self.process is None or not self.process.has_ended):
                raise
            cause = error if self.process is None else self.process.failure()
            self._failure = EngineDeadError(str(cause))
            self._output_processor.fail_all_requests(self._failure)
            self._output_processor.begin_message()
            raise self._failure from error


def _find_model(config: EngineConfig) -> tuple[Path, EngineConfig]:
    """The tokenizer's files, and the settings with the commit that they are of: the engine is to take the weights of the same."""
    if not is_on_hub(config.model.uri):
        return resolve_model(config.model.uri), config
    fetch = fetch_tokenizer(config.model, config.model_cache_dir, pin_directory=None)
    path = fetch.wait(lambda _progress, _message: None, seconds(config.lifecycle.startup_timeout))
    return path, msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, revision=fetch.progress.revision))


def launch(config: EngineConfig, program: Sequence[str] = ENGINE_PROGRAM) -> tuple[LaunchedEngine, SyncMPClient]:
    """Starts an engine and waits until it is READY. Whatever this raises, nothing is left behind."""
    process = LaunchedEngine(config, program)
    client: SyncMPClient | None = None
    try:
        target = ClientConfig(process.config.socket_dir, hang_seconds=seconds(config.lifecycle.engine_hang_timeout))
        client = EngineCoreClient.make_client(target, multiprocess_mode=True, asyncio_mode=False)
        process.start()
        _wait_until_ready(process, client)
    except BaseException:
        _close(client, process)
        raise
    return process, client


def _wait_until_ready(process: LaunchedEngine, client: SyncMPClient) -> None:
    limit = seconds(process.config.lifecycle.startup_timeout) + STARTUP_GRACE_SECONDS
    deadline = time.monotonic() + limit
    while not client.is_ready:
        if process.has_ended:
            raise process.failure()
        if time.monotonic() > deadline:
            raise EngineDeadError(f"the engine is not ready after {limit:.0f} s: {client.status.summary}")
        time.sleep(POLL_SECONDS)


def _make_core(config: EngineConfig) -> InprocCore:
    # torch: only an engine in this process needs it.
    from stoker_engine.executor.uniproc import UniprocExecutor
    from stoker_engine.inproc_core import EngineCoreInproc

    return EngineCoreInproc(config, UniprocExecutor(config))


def _close(client: EngineCoreClient | None, process: LaunchedEngine | None) -> None:
    try:
        if client is not None:
            client.shutdown()
    finally:
        if process is not None:
            process.shutdown()
