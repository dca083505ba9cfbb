"""UniprocExecutor: one worker in this process."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from stoker_engine.config import EngineConfig, max_batches_in_flight
from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.executor.base import ModelDescription, OnDownload
from stoker_engine.executor.pending import Done, Pending
from stoker_engine.executor.worker_thread import WorkerThread
from stoker_engine.worker.worker import Worker

T = TypeVar("T")


class UniprocExecutor:
    """An Executor in the engine core's own thread, whose results are there when it returns; on a thread of the worker's where more than one
    batch may be in flight."""

    def __init__(self, config: EngineConfig) -> None:
        self._worker = Worker(config)
        self._thread = WorkerThread() if max_batches_in_flight(config) > 1 else None
        self.is_shut_down = False

    def fetch_model(self, on_progress: OnDownload) -> None:
        self._worker.fetch_model(on_progress)

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        def report(share: float) -> None:
            if self.is_shut_down:
                raise RuntimeError("the executor was shut down while it loaded the model")
            on_progress(share)

        return self._call(self._worker.load_model, report).result()

    def profile(self) -> int:
        return self._call(self._worker.profile).result()

    def initialize_kv_cache(self, num_blocks: int) -> None:
        self._call(self._worker.initialize_kv_cache, num_blocks).result()

    def execute_model(self, scheduler_output: SchedulerOutput) -> Pending[ModelRunnerOutput | None]:
        return self._call(self._worker.execute_model, scheduler_output)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> Pending[ModelRunnerOutput]:
        return self._call(self._worker.sample_tokens, grammar_output)

    def register_failure_callback(self, callback: Callable[[str], None]) -> None:
        """Never called: a worker of this process does not end without the process."""

    def sleep(self, level: int) -> None:
        self._call(self._worker.sleep, level).result()

    def wake_up(self, tags: Collection[str]) -> None:
        self._call(self._worker.wake_up, tags).result()

    def start_profile(self, directory: str) -> None:
        self._call(self._worker.start_profile, directory).result()

    def stop_profile(self) -> None:
        self._call(self._worker.stop_profile).result()

    def shutdown(self) -> None:
        if self.is_shut_down:
            return
        self.is_shut_down = True
        if self._thread is None:
            self._worker.shutdown()
        else:
            freed = self._thread.submit(self._worker.shutdown)
            self._thread.close()
            if freed.done():  # else the thread hangs in a step, and the end of the process frees the device
                freed.result()

    def _call(self, call: Callable[..., T], *args: Any) -> Pending[T]:
        if self._thread is not None:
            return self._thread.submit(call, *args)
        return Done(call(*args))
