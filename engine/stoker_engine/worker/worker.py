"""Worker: one device, one model."""

import gc
import logging
from collections.abc import Callable

import torch

from stoker_engine.config import EngineConfig
from stoker_engine.core.grammar import GrammarOutput
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import SchedulerOutput
from stoker_engine.executor.base import ModelDescription
from stoker_engine.model_files import resolve_model
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.tokenizer import load_tokenizer
from stoker_engine.worker.device import choose_device
from stoker_engine.worker.dummy_step import warm_up
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_engine.worker.memory_profile import profile_kv_cache_bytes
from stoker_engine.worker.model_runner import ModelRunner

logger = logging.getLogger(__name__)


class Worker:
    """Called in this order: load_model, profile, initialize_kv_cache, then execute_model and sample_tokens for each step, shutdown."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._loaded: LoadedModel | None = None
        self._vocab_size = 0
        self._runner: ModelRunner | None = None

    def load_model(self, on_progress: Callable[[float], None]) -> ModelDescription:
        """Loads the weights. Raises ConfigError or ModelLoadError."""
        path = resolve_model(self._config.model.uri)
        device = choose_device(self._config)
        loaded = load_model(path, self._config, device, on_progress)
        self._loaded = loaded
        self._vocab_size = _common_vocab_size(loaded.vocab_size, load_tokenizer(path).vocab_size)
        return ModelDescription(
            max_model_len=loaded.shape.max_context,
            vocab_size=self._vocab_size,
            dtype=str(loaded.dtype).removeprefix("torch."),
            kv_block_bytes=loaded.kv_block_bytes,
        )

    def profile(self) -> int:
        """Runs the largest steps, on a CPU shorter ones; returns the bytes that are left for the KV cache."""
        return profile_kv_cache_bytes(self._config, self._model(), self._vocab_size)

    def initialize_kv_cache(self, num_blocks: int) -> None:
        loaded = self._model()
        kv_caches = allocate_kv_cache(loaded.kv_cache_shape, num_blocks, loaded.dtype, loaded.model.device)
        self._runner = ModelRunner(loaded, self._vocab_size, self._config.seed, kv_caches)
        warm_up(self._runner, self._config.block_size)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        if self._runner is None:
            raise RuntimeError("execute_model before initialize_kv_cache")
        return self._runner.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        if self._runner is None:
            raise RuntimeError("sample_tokens before initialize_kv_cache")
        return self._runner.sample_tokens(grammar_output)

    def shutdown(self) -> None:
        """Frees weights and KV cache. May be called at any time, more than once."""
        self._loaded = self._runner = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise RuntimeError("the model is not loaded")
        return self._loaded


def _common_vocab_size(num_rows: int, num_token_ids: int) -> int:
    """The ids that the model has rows for and the tokenizer text. Prompts with ids beyond are refused, answers never have them."""
    if num_token_ids > num_rows:
        logger.warning("the tokenizer has %d ids, the model rows for %d: requests that use ids from %d on are refused", num_token_ids, num_rows, num_rows)
    return min(num_rows, num_token_ids)
