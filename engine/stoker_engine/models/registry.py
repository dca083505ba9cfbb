"""Which class runs which architecture."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from stoker_engine.models.config import ARCHITECTURES, ModelShape
from stoker_engine.models.llama import LlamaModel, llama_parameters
from stoker_engine.models.weights import Parameter


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to build a model: the parameters it needs of a checkpoint, then the model from them."""

    parameters: Callable[[ModelShape], dict[str, Parameter]]
    build: Callable[[ModelShape, dict[str, Tensor]], LlamaModel]


_LLAMA = Architecture(llama_parameters, LlamaModel)

# Mistral is Llama within its sliding window, Qwen2 is Llama with biases on q, k and v.
ARCHITECTURES_BY_NAME = dict.fromkeys(ARCHITECTURES, _LLAMA)
