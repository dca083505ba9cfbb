"""Which class runs which architecture."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from stoker_engine.errors import ModelLoadError
from stoker_engine.models.config import ModelShape
from stoker_engine.models.llama import LlamaModel, llama_parameters
from stoker_engine.models.weights import Parameter


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to build a model: the parameters it needs of a checkpoint, then the model from them."""

    parameters: Callable[[ModelShape], dict[str, Parameter]]
    build: Callable[[ModelShape, dict[str, Tensor]], LlamaModel]


_LLAMA = Architecture(llama_parameters, LlamaModel)

# Mistral is Llama within its sliding window, Qwen2 is Llama with biases on q, k and v.
_ARCHITECTURES = {"LlamaForCausalLM": _LLAMA, "MistralForCausalLM": _LLAMA, "Qwen2ForCausalLM": _LLAMA}


def find_architecture(name: str) -> Architecture:
    """The architecture that a config names. Raises ModelLoadError listing those that are supported."""
    if name not in _ARCHITECTURES:
        raise ModelLoadError(f"architecture {name!r} is not supported; supported are {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[name]
