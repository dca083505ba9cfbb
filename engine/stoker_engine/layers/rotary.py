"""Rotary position embedding: the angle of each pair of dimensions per position, for every way of stretching the context that models use."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

RopeType = Literal["default", "linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeParameters:
    """The rope settings of a model. `rotary_dim` dimensions of each head are rotated; `original_max_position` is the context before stretching.

    `frequency_factors` [rotary_dim / 2] divide the frequencies: GGUF files store llama3 scaling this way.
    """

    rope_type: RopeType
    theta: float
    rotary_dim: int
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True
    frequency_factors: tuple[float, ...] | None = None


class RotaryEmbedding:
    """cos and sin of every position's angles."""

    def __init__(self, parameters: RopeParameters, device: torch.device) -> None:
        self._inverse_frequencies = inverse_frequencies(parameters).to(device)
        self._attention_factor = parameters.attention_factor

    def cos_sin(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """[T, 2, rotary_dim / 2] for positions [T]: computed in float32, scaled by the attention factor, rounded to dtype."""
        angles = positions.float()[:, None] * self._inverse_frequencies
        cos_sin = torch.stack((angles.cos(), angles.sin()), dim=1)
        if self._attention_factor != 1.0:
            cos_sin *= self._attention_factor
        return cos_sin.to(dtype)


def inverse_frequencies(parameters: RopeParameters) -> Tensor:
    """[rotary_dim / 2] float32: radians per position of each pair of dimensions."""
    exponents = torch.arange(0, parameters.rotary_dim, 2, dtype=torch.int64).float() / parameters.rotary_dim
    frequencies = 1.0 / (parameters.theta**exponents)
    if parameters.rope_type == "linear":
        frequencies = frequencies / parameters.factor
    elif parameters.rope_type == "llama3":
        frequencies = _llama3(frequencies, parameters)
    elif parameters.rope_type == "yarn":
        frequencies = _yarn(frequencies, parameters)
    if parameters.frequency_factors is not None:
        frequencies = frequencies / torch.tensor(parameters.frequency_factors, dtype=torch.float32)
    return frequencies


def _llama3(frequencies: Tensor, parameters: RopeParameters) -> Tensor:
    """Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between interpolated."""
    rotations = parameters.original_max_position * frequencies / (2 * math.pi)
    low, high = parameters.low_freq_factor, parameters.high_freq_factor
    kept_share = ((rotations - low) / (high - low)).clamp(0, 1)
    return (1 - kept_share) * frequencies / parameters.factor + kept_share * frequencies


def _yarn(frequencies: Tensor, parameters: RopeParameters) -> Tensor:
    """YaRN (Peng et al. 2023): dimensions with more than beta_fast rotations in the original context are kept, with fewer than beta_slow divided."""
    low, high = _yarn_dimension(parameters, parameters.beta_fast), _yarn_dimension(parameters, parameters.beta_slow)
    if parameters.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, parameters.rotary_dim - 1)
    ramp = (torch.arange(parameters.rotary_dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    kept_share = 1 - ramp.clamp(0, 1)
    return frequencies / parameters.factor * (1 - kept_share) + frequencies * kept_share


def _yarn_dimension(parameters: RopeParameters, rotations: float) -> float:
    """The pair of dimensions that makes so many rotations over the original context."""
    wavelength_share = parameters.original_max_position / (rotations * 2 * math.pi)
    return parameters.rotary_dim * math.log(wavelength_share) / (2 * math.log(parameters.theta))
