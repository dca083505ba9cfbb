"""Which class runs which architecture."""

from collections.abc import Callable
from dataclasses import dataclass

from stoker_engine.models.config import ARCHITECTURES, ModelShape
from stoker_engine.models.fused_llama import FusedLlama
from stoker_engine.models.llama import LlamaModel, llama_parameters
from stoker_engine.models.model import Model
from stoker_engine.models.weights import Parameter, Weights
from stoker_kernels import Ops


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to build a model: the parameters it needs of a checkpoint, then the model from them, for positions up to a number."""

    parameters: Callable[[ModelShape], dict[str, Parameter]]
    build: Callable[[ModelShape, Weights, Ops, int], Model]


def _build_llama(shape: ModelShape, weights: Weights, ops: Ops, max_positions: int) -> Model:
    if ops.cpu is not None:
        return FusedLlama(shape, weights, ops.cpu, max_positions)
    return LlamaModel(shape, weights, ops)


_LLAMA = Architecture(llama_parameters, _build_llama)

# Mistral is Llama within its sliding window, Qwen2 is Llama with biases on q, k and v.
ARCHITECTURES_BY_NAME = dict.fromkeys(ARCHITECTURES, _LLAMA)
