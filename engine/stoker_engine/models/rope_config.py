"""The rope settings of a model's configuration, in every spelling in use.

`rope_theta` beside `rope_scaling` with `rope_type`, the same with `type`, or both inside `rope_parameters`.
"""

import math
from typing import get_args

from stoker_engine.errors import ModelLoadError
from stoker_engine.layers.rotary import RopeParameters, RopeType
from stoker_engine.models.config_fields import ConfigFields

_DEFAULT_THETA = 10000.0


def read_rope(config: ConfigFields, head_dim: int) -> RopeParameters:
    """The rope of a model whose heads have `head_dim` dimensions. Raises ModelLoadError for a rope type that is not supported, by name."""
    scaling = config.section("rope_parameters" if "rope_parameters" in config else "rope_scaling")
    rope_type = scaling.text("rope_type", scaling.text("type", "default"))
    theta = scaling.number("rope_theta", config.number("rope_theta", _DEFAULT_THETA))
    share = scaling.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    rotary_dim = int(head_dim * share)
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ModelLoadError(f"{config.source}: head_dim {head_dim} with partial_rotary_factor {share} rotates {rotary_dim} dimensions, not an even part of it")
    max_position = config.integer("max_position_embeddings")
    original = config.integer("original_max_position_embeddings", scaling.integer("original_max_position_embeddings", max_position))
    if rope_type == "default":
        return RopeParameters(rope_type="default", theta=theta, rotary_dim=rotary_dim)
    if rope_type == "linear":
        return RopeParameters(rope_type="linear", theta=theta, rotary_dim=rotary_dim, factor=scaling.number("factor"))
    if rope_type == "llama3":
        return RopeParameters(
            rope_type="llama3",
            theta=theta,
            rotary_dim=rotary_dim,
            factor=scaling.number("factor"),
            original_max_position=original,
            low_freq_factor=scaling.number("low_freq_factor"),
            high_freq_factor=scaling.number("high_freq_factor"),
        )
    if rope_type == "yarn":
        factor = scaling.number("factor", max_position / original)
        return RopeParameters(
            rope_type="yarn",
            theta=theta,
            rotary_dim=rotary_dim,
            factor=factor,
            original_max_position=original,
            beta_fast=scaling.number("beta_fast", 32.0),
            beta_slow=scaling.number("beta_slow", 1.0),
            attention_factor=_yarn_attention_factor(scaling, factor),
            truncate=scaling.boolean("truncate", default=True),
        )
    raise ModelLoadError(f"{scaling.source}: rope_type {rope_type!r} is not supported; supported are {', '.join(get_args(RopeType))}")


def max_context(rope: RopeParameters, max_position_embeddings: int) -> int:
    """The longest context, in tokens, that the model's rope reaches."""
    if rope.rope_type == "yarn":
        return round(rope.original_max_position * rope.factor)
    if rope.rope_type == "linear":
        return round(max_position_embeddings * rope.factor)
    return max_position_embeddings


def _yarn_attention_factor(scaling: ConfigFields, factor: float) -> float:
    if "attention_factor" in scaling:
        return scaling.number("attention_factor")
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return _mscale(factor, scaling.number("mscale")) / _mscale(factor, scaling.number("mscale_all_dim"))
    return _mscale(factor, 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
