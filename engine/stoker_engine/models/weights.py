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
    """The filled targets by name, from a checkpoint's (name, tensor) pairs. Of two tensors of a name the first counts.

    Raises ModelLoadError naming the tensor that is missing or has another shape than the config says; a tensor that no parameter asks for is warned of once.
    """
    targets = _Targets(parameters, placement)
    loaded, unknown = set[str](), list[str]()
    progress = _Progress(sum(torch.Size(parameter.shape).numel() for parameter in parameters.values()), placement.on_progress)
    for name, tensor in tensors:
        parameter = parameters.get(name)
        if parameter is None:
            if name not in ignored and not name.endswith(_IGNORED_SUFFIX):
                unknown.append(name)
            continue
        _check(name, tensor, parameter, source)
        if name in loaded:
            continue
        targets.fill(parameter, tensor)
        loaded.add(name)
        progress.add(tensor.numel())
    missing = [name for name in parameters if name not in loaded]
    if missing:
        raise ModelLoadError(f"{source}: tensor {missing[0]} is missing" + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""))
    if unknown:
        logger.warning("%s: %d tensors are not part of the model and were ignored, such as %s", source, len(unknown), unknown[0])
    return targets.weights


def make_dummy_weights(parameters: Mapping[str, Parameter], placement: WeightPlacement, seed: int) -> dict[str, Tensor]:
    """Seeded random weights: matrices normal with deviation 0.02, vectors (norms and biases) 1."""
    generator = torch.Generator(device=placement.device).manual_seed(seed)
    weights = {}
    for target, shape in _target_shapes(parameters).items():
        weight = torch.empty(shape, dtype=placement.dtype, device=placement.device)
        if weight.dim() == 1:
            weight.fill_(1.0)
        else:
            weight.normal_(0.0, 0.02, generator=generator)
        weights[target] = weight
    placement.on_progress(1.0)
    return weights


class _Progress:
    """Tells it at each whole percent: telling takes longer than a small tensor."""

    def __init__(self, num_values: int, on_progress: Callable[[float], None]) -> None:
        self._num_values = num_values
        self._on_progress = on_progress
        self._num_loaded = 0
        self._percent = 0

    def add(self, num_values: int) -> None:
        self._num_loaded += num_values
        percent = 100 * self._num_loaded // self._num_values
        if percent > self._percent:
            self._percent = percent
            self._on_progress(self._num_loaded / self._num_values)


class _Targets:
    """Each target is allocated when the first of its parts comes."""

    def __init__(self, parameters: Mapping[str, Parameter], placement: WeightPlacement) -> None:
        self.weights: dict[str, Tensor] = {}
        self._placement = placement
        self._shapes = _target_shapes(parameters)

    def fill(self, parameter: Parameter, part: Tensor) -> None:
        target = parameter.target
        if target not in self.weights:
            self.weights[target] = torch.empty(self._shapes[target], dtype=self._placement.dtype, device=self._placement.device)
        self.weights[target][parameter.first_row : parameter.first_row + parameter.shape[0]].copy_(part)


def _target_shapes(parameters: Mapping[str, Parameter]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter in parameters.values():
        rows = max(parameter.first_row + parameter.shape[0], shapes.get(parameter.target, (0,))[0])
        shapes[parameter.target] = (rows, *parameter.shape[1:])
    return shapes


def _check(name: str, tensor: Tensor, parameter: Parameter, source: str) -> None:
    if tuple(tensor.shape) != parameter.shape:
        raise ModelLoadError(f"{source}: tensor {name} has the shape {list(tensor.shape)}, the config says {list(parameter.shape)}")
    if not tensor.is_floating_point():
        raise ModelLoadError(f"{source}: tensor {name} has the dtype {tensor.dtype}, which is not a floating-point one")
