"""Worker: one device, one model."""

import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from torch import Tensor

from stoker_engine.config import EngineConfig
from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.errors import ModelLoadError
from stoker_engine.executor.base import ModelDescription, OnDownload
from stoker_engine.model_fetch import fetch_weights
from stoker_engine.model_files import is_on_hub, resolve_model
from stoker_engine.models.config import ModelShape
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.tokenizer import count_token_ids
from stoker_engine.worker.device import choose_device
from stoker_engine.worker.dummy_step import warm_up
from stoker_engine.worker.grammar import XGrammarSource
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_engine.worker.memory_profile import profile_kv_cache_bytes
from stoker_engine.worker.model_runner import ModelRunner
from stoker_engine.worker.profile import Profile
from stoker_engine.worker.sleep import OffloadedWeights, return_freed_memory

logger = logging.getLogger(__name__)


class Worker:
    """Called in this order: fetch_model where the model may be elsewhere, load_model, profile, initialize_kv_cache, then execute_model and sample_tokens
    for each step, shutdown."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._path: Path | None = None
        self._loaded: LoadedModel | None = None
        self._shape: ModelShape | None = None
        self._offloaded: OffloadedWeights | None = None
        self._vocab_size = 0
        self._allocate_kv_cache: Callable[[], list[Tensor]] | None = None
        self._kv_caches: list[Tensor] | None = None
        self._runner: ModelRunner | None = None
        self._asleep: set[str] = set()
        self._profile: Profile | None = None
        self._grammars: XGrammarSource | None = None

    def fetch_model(self, on_progress: OnDownload) -> None:
        """Downloads an hf:// model. Raises ConfigError or ModelLoadError."""
        if is_on_hub(self._config.model.uri):
            self._path = fetch_weights(self._config.model, self._config.model_cache_dir, self._config.socket_dir).wait(on_progress)

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        """Loads the weights. Raises ConfigError or ModelLoadError."""
        path = self._model_path()
        device = choose_device(self._config)
        loaded = load_model(path, self._config, device, on_progress)
        self._loaded, self._shape = loaded, loaded.shape
        self._vocab_size = _common_vocab_size(loaded.vocab_size, count_token_ids(path))
        self._grammars = XGrammarSource(path, self._vocab_size)
        return ModelDescription(
            max_model_len=loaded.shape.max_context,
            vocab_size=self._vocab_size,
            dtype=str(loaded.dtype).removeprefix("torch."),
            kv_block_bytes=loaded.kv_block_bytes,
            grammars=self._grammars,
        )

    def profile(self) -> int:
        """Runs the largest steps, on a CPU shorter ones; returns the bytes that are left for the KV cache."""
        return profile_kv_cache_bytes(self._config, self._model(), self._vocab_size)

    def initialize_kv_cache(self, num_blocks: int) -> None:
        loaded = self._model()
        self._allocate_kv_cache = partial(allocate_kv_cache, loaded.ops, loaded.kv_cache_shape, num_blocks, loaded.dtype, loaded.model.device)
        self._kv_caches = self._allocate_kv_cache()
        warm_up(self._make_runner(loaded, self._kv_caches), self._config.block_size)
        return_freed_memory()  # what loading and profiling took: 110 MiB for a model of 650

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        if self._runner is not None:
            return self._runner.execute_model(scheduler_output)
        if self._asleep and not scheduler_output.total_num_scheduled_tokens:
            return ModelRunnerOutput()  # the requests that it ends went with the runner
        raise RuntimeError("execute_model while the worker sleeps" if self._asleep else "execute_model before initialize_kv_cache")

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        if self._runner is None:
            raise RuntimeError("sample_tokens without a forward before it")
        return self._runner.sample_tokens(grammar_output)

    def sleep(self, level: int) -> None:
        """Gives back the KV cache and, at level 2, the weights; at level 1 a device's weights move to the host, those of a CPU are there already."""
        loaded = self._model()
        self._asleep = {"weights", "kv_cache"}
        self._runner = self._kv_caches = None
        if level > 1:
            self._loaded = None
        elif loaded.model.device.type != "cpu":
            self._offloaded = OffloadedWeights(loaded.model)
        del loaded
        return_freed_memory()

    def wake_up(self, tags: Collection[str]) -> None:
        """Takes back `weights`, `kv_cache` or both. Raises ModelLoadError where the weights cannot be loaded again."""
        if "weights" in tags:
            self._wake_weights()
        if "kv_cache" in tags and self._allocate_kv_cache is not None:
            self._kv_caches = self._allocate_kv_cache()
        self._asleep -= set(tags)
        if not self._asleep and self._kv_caches is not None:
            self._make_runner(self._model(), self._kv_caches)

    def start_profile(self, directory: str) -> None:
        """Records what this thread and the device compute, until `stop_profile`."""
        self._profile = Profile(directory)

    def stop_profile(self) -> None:
        """Writes a trace into the directory. Raises OSError where that is not possible."""
        if self._profile is None:
            raise RuntimeError("stop_profile before start_profile")
        profile, self._profile = self._profile, None
        profile.write()

    def shutdown(self) -> None:
        """Frees weights and KV cache. May be called at any time, more than once."""
        if self._grammars is not None:
            self._grammars.close()
        self._loaded = self._offloaded = self._runner = self._kv_caches = None
        return_freed_memory()

    def _wake_weights(self) -> None:
        if self._offloaded is not None:
            self._offloaded.restore()
            self._offloaded = None
        elif self._loaded is None:
            path = self._model_path()
            loaded = load_model(path, self._config, choose_device(self._config), lambda share: None)
            if loaded.shape != self._shape:
                raise ModelLoadError(f"{path}: the model is another one than before the sleep")
            self._loaded = loaded
            return_freed_memory()

    def _model_path(self) -> Path:
        return self._path or resolve_model(self._config.model.uri)

    def _make_runner(self, loaded: LoadedModel, kv_caches: list[Tensor]) -> ModelRunner:
        self._runner = ModelRunner(loaded, self._vocab_size, self._config.seed, kv_caches)
        return self._runner

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise RuntimeError("the model is not loaded")
        return self._loaded


def _common_vocab_size(num_rows: int, num_token_ids: int) -> int:
    """The ids that the model has rows for and the tokenizer text. Prompts with ids beyond are refused, answers never have them."""
    if num_token_ids > num_rows:
        logger.warning("the tokenizer has %d ids, the model rows for %d: requests that use ids from %d on are refused", num_token_ids, num_rows, num_rows)
    return min(num_rows, num_token_ids)
