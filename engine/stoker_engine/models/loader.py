"""load_model: a model's files on disk to a model on a device."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError
from stoker_engine.layers.attention import KVCacheShape
from stoker_engine.models.config import DTYPES, ModelShape
from stoker_engine.models.gguf_weights import open_gguf
from stoker_engine.models.llama import HEAD
from stoker_engine.models.model import Model
from stoker_engine.models.registry import ARCHITECTURES_BY_NAME
from stoker_engine.models.safetensors_weights import open_directory
from stoker_engine.models.weights import LoadedWeights, Parameter, WeightPlacement, make_dummy_weights
from stoker_kernels import InstructionSetError, Ops, QuantizationError, choose_ops

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. `max_model_len` is the setting, or the model's own longest context; `vocab_size` counts rows of the embedding."""

    model: Model
    ops: Ops
    shape: ModelShape
    dtype: torch.dtype
    kv_cache_shape: KVCacheShape
    max_model_len: int

    @property
    def vocab_size(self) -> int:
        return self.shape.vocab_size

    @property
    def kv_block_bytes(self) -> int:
        """Bytes of one KV cache block over all layers."""
        return self.kv_cache_shape.block_bytes(self.dtype)


class Checkpoint(Protocol):
    """A model's files: their configuration, read, and their tensors, to be read once."""

    @property
    def shape(self) -> ModelShape: ...

    def iterate_tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of each, in `dtype` where it has to be computed."""
        ...


def load_model(path: Path, config: EngineConfig, device: torch.device, on_progress: Callable[[float], None]) -> LoadedModel:
    """Loads the Hugging Face directory or GGUF file at `path`; `on_progress` gets the loaded share, 0 to 1.

    Raises ModelLoadError if the files are missing, damaged or of a model that is not supported, ConfigError if max_model_len is beyond the model's context or
    the weights cannot be quantized as the configuration says.
    """
    checkpoint: Checkpoint = open_directory(path) if path.is_dir() else open_gguf(path)
    shape = checkpoint.shape
    architecture = ARCHITECTURES_BY_NAME[shape.architecture]
    max_model_len = resolve_max_model_len(config.max_model_len, shape)
    placement = WeightPlacement(resolve_dtype(config.dtype, shape.dtype, device), device, on_progress)
    parameters = architecture.parameters(shape)
    ops = _choose_ops(config, shape, parameters, placement)
    # A warm-up goes through a whole block, however short the requests may be.
    max_positions = max(max_model_len, config.block_size)
    if config.load_format == "dummy":
        model = architecture.build(shape, make_dummy_weights(parameters, placement, config.seed), ops, max_positions)
    else:
        # Checkpoints of tied models may carry the head again.
        ignored = frozenset({HEAD} if shape.ties_embeddings else ())
        weights = LoadedWeights(parameters, checkpoint.iterate_tensors(placement.dtype), placement, str(path), ignored)
        model = architecture.build(shape, weights, ops, max_positions)
        weights.finish()
    logger.info("loaded %s: %s, %d layers, %s on %s", path, shape.architecture, shape.num_layers, placement.dtype, device)
    kv_cache_shape = KVCacheShape(shape.num_layers, config.block_size, shape.num_kv_heads, shape.head_dim)
    return LoadedModel(model, ops, shape, placement.dtype, kv_cache_shape, max_model_len)


def _choose_ops(config: EngineConfig, shape: ModelShape, parameters: Mapping[str, Parameter], placement: WeightPlacement) -> Ops:
    input_sizes = {parameter.shape[1] for parameter in parameters.values() if len(parameter.shape) > 1}
    try:
        ops = choose_ops(placement.device, placement.dtype, config.block_size, shape.head_dim, config.quantization, input_sizes=input_sizes)
    except QuantizationError as error:
        raise ConfigError(f"--quantization: {error}; use none") from error
    except InstructionSetError as error:
        raise ConfigError(str(error)) from error
    if ops.cpu is not None:
        ops.cpu.set_num_threads(torch.get_num_threads())
    return ops


def resolve_max_model_len(setting: int | None, shape: ModelShape) -> int:
    """The setting, or the model's longest context; raises ConfigError if the setting is longer."""
    if setting is None:
        return shape.max_context
    if setting > shape.max_context:
        raise ConfigError(f"--max-model-len: {setting} is beyond the model's context of {shape.max_context} tokens")
    return setting


def resolve_dtype(setting: str, checkpoint_dtype: torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype to run in. auto: the checkpoint's own, bfloat16 if it says none (GGUF), and bfloat16 for float16 on a CPU.

    CPUs have no float16 arithmetic to speak of, and bfloat16 has the wider range; float16 is used only if the checkpoint or the user says so.
    """
    if setting != "auto":
        return DTYPES[setting]
    if checkpoint_dtype is None:
        return torch.bfloat16
    if checkpoint_dtype == torch.float16 and device.type == "cpu":
        logger.info("the checkpoint is float16, which this CPU is slow at: running it in bfloat16")
        return torch.bfloat16
    return checkpoint_dtype
