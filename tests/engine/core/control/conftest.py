"""A scheduler without a model under the control of its client, and an executor whose sleep takes the worker's memory away."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from stoker_engine.core.control import CoreControl
from stoker_engine.core.sleep import MEMORY_TAGS
from stoker_engine.errors import ModelLoadError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import EnginePhase


class Memory:
    """The worker's memory, as an executor's sleep takes it away. Whoever computes without it has a KV cache of nonsense."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.missing: set[str] = set()
        self.load_error: str | None = None
        self.sleep_error: str | None = None
        self.profiles: list[str] = []

    def sleep(self, level: int) -> None:
        assert not self.missing
        assert not self.engine.state.running, "a running request's blocks went with the memory"
        assert not self.engine.stepping.num_in_flight, "a step under way lost its memory"
        self.missing = set(MEMORY_TAGS)
        self.engine.worker.poison(range(len(self.engine.worker.slots)))
        if self.sleep_error is not None:
            raise RuntimeError(self.sleep_error)

    def wake_up(self, tags: Collection[str]) -> None:
        if self.load_error is not None and "weights" in tags:
            raise ModelLoadError(self.load_error)
        self.missing -= set(tags)

    def start_profile(self, directory: str) -> None:
        self.profiles.append(directory)

    def stop_profile(self) -> None:
        self.profiles.append("written")


class ControlledEngine:
    """A scheduler and its control, stepped as the core's loop does."""

    def __init__(self, engine: Any, profile_dir: str | None = None) -> None:
        self.engine = engine
        self.memory = Memory(engine)
        self.phases: list[EnginePhase] = []
        executor: Any = self.memory
        self.control = CoreControl(engine.scheduler, executor, profile_dir, has_work=engine.has_work, report=self.phases.append)

    def step(self) -> Any:
        scheduler_output = self.engine.step()
        assert not (self.memory.missing and scheduler_output.total_num_scheduled_tokens), "a forward without memory"
        return scheduler_output

    def run(self) -> None:
        """Until there is nothing to do, and what waited for that is done."""
        for _ in range(2000):
            self.control.fire_if_idle()
            if not self.engine.has_work():
                return
            self.step()
        raise AssertionError("still busy")

    def finish_reason(self, request_id: str) -> FinishReason | None:
        reason: FinishReason | None = self.engine.results[request_id].finish_reason
        return reason

    def token_ids(self, request_id: str) -> list[int]:
        token_ids: list[int] = self.engine.results[request_id].token_ids
        return token_ids


MakeEngine = Callable[..., ControlledEngine]


@pytest.fixture(scope="session")
def controlled(engine_of: Callable[..., Any]) -> MakeEngine:
    def make(num_blocks: int = 64, *, profile_dir: str | None = None, **settings: Any) -> ControlledEngine:
        return ControlledEngine(engine_of(num_blocks, **settings), profile_dir)

    return make
