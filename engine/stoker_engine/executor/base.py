"""Executor: what the engine core asks of the workers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from stoker_engine.core.grammar import NO_GRAMMARS, GrammarOutput, GrammarSource
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.executor.pending import Pending
from stoker_engine.protocol import ModelDownload


@dataclass(slots=True, frozen=True)
class ModelDescription:
    """What the engine core must know of a loaded model. `kv_block_bytes` is one KV cache block over all layers.

    `vocab_size` counts the ids that may be sampled or fed: the smaller of the model's rows and the tokenizer's ids. Where a token sees those after
    it, the model is not causal: a prompt can be neither split over steps nor begun from another one's blocks. `grammars` know the model's vocabulary.
    """

    max_model_len: int
    vocab_size: int
    dtype: str
    kv_block_bytes: int
    is_causal: bool = True
    grammars: GrammarSource = NO_GRAMMARS


class ExecutorFailedError(RuntimeError):
    """A worker ended while nobody called it."""


OnDownload = Callable[[ModelDownload, str], None]
"""How far a download is, and what it waits for."""


class Executor(Protocol):
    """Runs the model. Called from the engine core's thread only: fetch_model, load_model, profile, initialize_kv_cache, then steps, shutdown at the end.

    A step is `execute_model` and, where it has tokens, `sample_tokens` after it. Calls complete in the order they were made, whether or not their
    results were waited for. What a step raises, at once or in its result, is fatal; `sleep`, `wake_up` and the profile's calls may fail alone.
    """

    def fetch_model(self, on_progress: OnDownload) -> None:
        """Downloads a model that is elsewhere; nothing is reported of one that is here. Raises ConfigError or ModelLoadError."""

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        """Loads the weights; `on_progress` gets the loaded share of the bytes, 0 to 1, on any thread. Raises ModelLoadError."""

    def profile(self) -> int:
        """Runs the largest steps, on a CPU shorter ones, and returns the bytes that are left for the KV cache on this device."""

    def initialize_kv_cache(self, num_blocks: int) -> None:
        """Allocates the KV cache and warms the kernels up."""

    def execute_model(self, scheduler_output: SchedulerOutput) -> Pending[ModelRunnerOutput | None]:
        """One step's forward. None: it is done, and `sample_tokens` has its tokens. A step of zero tokens, which only carries ended requests, is
        answered directly."""

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> Pending[ModelRunnerOutput]:
        """The tokens of the forward before. It comes before the next forward, which may need them."""

    def register_failure_callback(self, callback: Callable[[str], None]) -> None:
        """`callback` is told, on any thread, why a worker ended outside a call. Results that wait for it fail then, too."""

    def sleep(self, level: int) -> None:
        """Gives the device's memory back: level 1 keeps the weights on the host, level 2 drops them. Where it fails half-way, `wake_up` takes all back."""

    def wake_up(self, tags: Collection[str]) -> None:
        """Takes memory again for `weights`, `kv_cache` or both. Raises ModelLoadError or ConfigError where that cannot be; it may be tried again."""

    def start_profile(self, directory: str) -> None:
        """Records what the device does, into files in `directory`."""

    def stop_profile(self) -> None: ...

    def shutdown(self) -> None:
        """Frees the device. May be called at any time, more than once."""
