"""UniprocExecutor: one worker, in the engine core's own thread."""

from collections.abc import Callable
from concurrent.futures import Future

from stoker_engine.config import EngineConfig
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.executor.base import ModelDescription
from stoker_engine.worker.worker import Worker


class UniprocExecutor:
    """An Executor whose futures are done when they are returned."""

    def __init__(self, config: EngineConfig) -> None:
        self._worker = Worker(config)

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        return self._worker.load_model(on_progress)

    def profile(self) -> int:
        return self._worker.profile()

    def initialize_kv_cache(self, num_blocks: int) -> None:
        self._worker.initialize_kv_cache(num_blocks)

    def execute_model(self, scheduler_output: SchedulerOutput) -> Future[ModelRunnerOutput]:
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(self._worker.execute_model(scheduler_output))
        return future

    def shutdown(self) -> None:
        self._worker.shutdown()
