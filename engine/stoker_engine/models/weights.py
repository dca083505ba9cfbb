"""Puts a checkpoint's tensors where the model wants them: by name, each exactly once, in the model's dtype."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stoker_engine.errors import ModelLoadError

logger = logging.getLogger(__name__)

# Older checkpoints store what is computed from the config; it is no weight.
_IGNORED_SUFFIX = ".rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Where a checkpoint's tensor of this shape goes: into the rows of `target` from `first_row` on. Several may share one target."""

    target: str
    shape: tuple[int, ...]
    first_row: int = 0


@dataclass(frozen=True, slots=True)
class WeightPlacement:
    """How weights are stored: in which dtype, where, and who hears of the progress (the loaded share, 0 to 1)."""

    dtype: torch.dtype
    device: torch.device
    on_progress: Callable[[float], None]


def load_weights(
    parameters: Mapping[str, Parameter], tensors: Iterable[tuple[str, Tensor]], placement: WeightPlacement, source: str, ignored: frozenset[str] = frozenset()
) -> dict[str, Tensor]:
    """The filled targets by name, from a checkpoint's (name, tensor) pairs.

    Raises ModelLoadError naming the tensor that is missing or has another shape than the config says; a tensor that no parameter asks for is warned of once.
    """
    weights = _allocate(parameters, placement)
    loaded, unknown = set[str](), list[str]()
    num_loaded, num_total = 0, sum(torch.Size(parameter.shape).numel() for parameter in parameters.values())
    for name, tensor in tensors:
        parameter = parameters.get(name)
        if parameter is None:
            if name not in ignored and not name.endswith(_IGNORED_SUFFIX):
                unknown.append(name)
            continue
        _check(name, tensor, parameter, source)
        target = weights[parameter.target]
        target[parameter.first_row : parameter.first_row + parameter.shape[0]].copy_(tensor)
        loaded.add(name)
        num_loaded += tensor.numel()
        placement.on_progress(num_loaded / num_total)
    missing = [name for name in parameters if name not in loaded]
    if missing:
        raise ModelLoadError(f"{source}: tensor {missing[0]} is missing" + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""))
    if unknown:
        logger.warning("%s: %d tensors are not part of the model and were ignored, such as %s", source, len(unknown), unknown[0])
    return weights


def make_dummy_weights(parameters: Mapping[str, Parameter], placement: WeightPlacement, seed: int) -> dict[str, Tensor]:
    """Seeded random weights: matrices normal with deviation 0.02, vectors (norms and biases) 1."""
    generator = torch.Generator(device=placement.device).manual_seed(seed)
    weights = _allocate(parameters, placement)
    for weight in weights.values():
        if weight.dim() == 1:
            weight.fill_(1.0)
        else:
            weight.normal_(0.0, 0.02, generator=generator)
    placement.on_progress(1.0)
    return weights


def _allocate(parameters: Mapping[str, Parameter], placement: WeightPlacement) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter in parameters.values():
        rows = max(parameter.first_row + parameter.shape[0], shapes.get(parameter.target, (0,))[0])
        shapes[parameter.target] = (rows, *parameter.shape[1:])
    return {target: torch.empty(shape, dtype=placement.dtype, device=placement.device) for target, shape in shapes.items()}


def _check(name: str, tensor: Tensor, parameter: Parameter, source: str) -> None:
    if tuple(tensor.shape) != parameter.shape:
        raise ModelLoadError(f"{source}: tensor {name} has the shape {list(tensor.shape)}, the config says {list(parameter.shape)}")
    if not tensor.is_floating_point():
        raise ModelLoadError(f"{source}: tensor {name} has the dtype {tensor.dtype}, which is not a floating-point one")
