"""Executor: what the engine core asks of the workers."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput


@dataclass(slots=True, frozen=True)
class ModelDescription:
    """What the engine core must know of a loaded model. `kv_block_bytes` is one KV cache block over all layers.

    `vocab_size` counts the ids that may be sampled or fed: the smaller of the model's rows and the tokenizer's ids.
    """

    max_model_len: int
    vocab_size: int
    dtype: str
    kv_block_bytes: int


class Executor(Protocol):
    """Runs the model. Called from the engine core's thread only, in this order: load_model, profile, initialize_kv_cache, execute_model …, shutdown."""

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        """Loads the weights; `on_progress` gets the loaded share of the bytes, 0 to 1. Raises ModelLoadError."""

    def profile(self) -> int:
        """Runs the largest steps, on a CPU shorter ones, and returns the bytes that are left for the KV cache on this device."""

    def initialize_kv_cache(self, num_blocks: int) -> None:
        """Allocates the KV cache and warms the kernels up."""

    def execute_model(self, scheduler_output: SchedulerOutput) -> Future[ModelRunnerOutput]:
        """One step; also called for steps of zero tokens, which only carry finished requests. What a step raises, here or in the future, is fatal."""

    def shutdown(self) -> None:
        """Frees the device. May be called at any time, more than once."""
