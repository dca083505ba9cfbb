"""Puts a checkpoint's tensors where the model wants them: by name, each exactly once, in the model's dtype."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, overload

import torch
from torch import Tensor

from stoker_engine.errors import ModelLoadError
from stoker_kernels.cpu.memory import allocate_apart

logger = logging.getLogger(__name__)

# Older checkpoints store what is computed from the config; it is no weight.
_IGNORED_SUFFIX = ".rotary_emb.inv_freq"
_LARGE_BYTES = 1 << 17


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


class Weights(Protocol):
    """A model's weights by name, each taken out once as the model lays it out: two layouts of all of them would need twice the memory."""

    @overload
    def pop(self, name: str, /) -> Tensor: ...

    @overload
    def pop(self, name: str, default: None, /) -> Tensor | None: ...


class LoadedWeights:
    """The filled targets of a checkpoint's (name, tensor) pairs, read as far as the target that is asked for. Of two tensors of a name the first counts.

    Raises ModelLoadError naming the tensor that is missing or has another shape than the config says.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        tensors: Iterable[tuple[str, Tensor]],
        placement: WeightPlacement,
        source: str,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self._parameters = parameters
        self._tensors = iter(tensors)
        self._source = source
        self._ignored = ignored
        self._targets = _Targets(parameters, placement)
        self._parts = Counter(parameter.target for parameter in parameters.values())
        self._loaded, self._unknown = set[str](), list[str]()
        self._progress = _Progress(sum(torch.Size(parameter.shape).numel() for parameter in parameters.values()), placement.on_progress)

    @overload
    def pop(self, name: str, /) -> Tensor: ...

    @overload
    def pop(self, name: str, default: None, /) -> Tensor | None: ...

    def pop(self, name: str, *default: None) -> Tensor | None:
        """The target of this name; the default where no parameter has it."""
        if default and name not in self._parts:
            return None
        while self._parts[name]:
            self._read(next(self._tensors, None))
        return self._targets.weights.pop(name)

    def finish(self) -> None:
        """Reads the rest, and warns once of tensors that no parameter asks for."""
        for tensor in self._tensors:
            self._read(tensor)
        if len(self._loaded) < len(self._parameters):
            self._read(None)
        if self._unknown:
            logger.warning("%s: %d tensors are not part of the model and were ignored, such as %s", self._source, len(self._unknown), self._unknown[0])

    def _read(self, named: tuple[str, Tensor] | None) -> None:
        """Puts a tensor into its place; None: there is none left, though some are missing."""
        if named is None:
            missing = [name for name in self._parameters if name not in self._loaded]
            raise ModelLoadError(f"{self._source}: tensor {missing[0]} is missing" + (f", and {len(missing) - 1} more" if len(missing) > 1 else ""))
        name, tensor = named
        parameter = self._parameters.get(name)
        if parameter is None:
            if name not in self._ignored and not name.endswith(_IGNORED_SUFFIX):
                self._unknown.append(name)
            return
        _check(name, tensor, parameter, self._source)
        if name in self._loaded:
            return
        self._targets.fill(parameter, tensor)
        self._loaded.add(name)
        self._parts[parameter.target] -= 1
        self._progress.add(tensor.numel())


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
            self.weights[target] = self._allocate(self._shapes[target])
        self.weights[target][parameter.first_row : parameter.first_row + parameter.shape[0]].copy_(part)

    def _allocate(self, shape: tuple[int, ...]) -> Tensor:
        """On a CPU a matrix goes once it is laid out, and the vectors around it stay."""
        dtype, size = self._placement.dtype, math.prod(shape)
        if self._placement.device.type == "cpu" and size * dtype.itemsize >= _LARGE_BYTES:
            return allocate_apart(size, dtype).view(shape)
        return torch.empty(shape, dtype=dtype, device=self._placement.device)


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
