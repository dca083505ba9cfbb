"""Settings that contradict each other, found at start."""

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError


def check_scheduler_settings(config: EngineConfig, max_model_len: int) -> None:
    """Raises ConfigError, naming the setting, its value and what is allowed."""
    budget = config.max_num_batched_tokens
    if not config.enable_chunked_prefill and budget < max_model_len:
        raise ConfigError(
            f"--max-num-batched-tokens must be at least max_model_len ({max_model_len}) where prompts are not split over steps, got {budget}. "
            "Raise it, lower --max-model-len, or use --enable-chunked-prefill"
        )
    if budget < config.max_num_seqs:
        raise ConfigError(f"--max-num-batched-tokens must be at least --max-num-seqs ({config.max_num_seqs}), got {budget}")
