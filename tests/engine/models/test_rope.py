import math
from typing import Any

import pytest
import torch

from stoker_engine.errors import ModelLoadError
from stoker_engine.layers.rotary import RotaryEmbedding, inverse_frequencies
from stoker_engine.models.config_fields import ConfigFields
from stoker_engine.models.rope_config import max_context, read_rope

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}


def spellings(theta: float, rope_type: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "rope_type": {"rope_theta": theta, "rope_scaling": {"rope_type": rope_type, **values}},
        "type": {"rope_theta": theta, "rope_scaling": {"type": rope_type, **values}},
        "rope_parameters": {"rope_parameters": {"rope_type": rope_type, "rope_theta": theta, **values}},
    }


def config(**values: Any) -> ConfigFields:
    return ConfigFields({"max_position_embeddings": 32768} | values, "config.json")


def ratios(head_dim: int, theta: float, values: dict[str, Any]) -> list[float]:
    scaled = inverse_frequencies(read_rope(config(**values), head_dim))
    unscaled = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return (scaled / unscaled).tolist()


@pytest.mark.case("C053")
@pytest.mark.parametrize("spelling", ["rope_type", "type", "rope_parameters"])
def test_llama3_scaling_keeps_short_wavelengths_and_divides_long_ones(spelling: str) -> None:
    ratio = ratios(64, 500000.0, spellings(500000.0, "llama3", LLAMA3)[spelling])
    expected = [1.0] * 15 + [0.6437431, 0.3711223, 0.1902107] + [0.125] * 14
    assert ratio == pytest.approx(expected, rel=1e-5)


@pytest.mark.case("C054")
@pytest.mark.parametrize("spelling", ["rope_type", "type", "rope_parameters"])
def test_yarn_scaling_ramps_from_kept_to_divided(spelling: str) -> None:
    ratio = ratios(128, 1e6, spellings(1e6, "yarn", YARN)[spelling])
    assert ratio[:24] == pytest.approx([1.0] * 24, rel=1e-5)
    assert (ratio[24], ratio[31]) == pytest.approx((0.9558824, 0.6470588), rel=1e-5)
    assert ratio[40:] == pytest.approx([0.25] * 24, rel=1e-5)


@pytest.mark.case("C054")
@pytest.mark.parametrize("spelling", ["rope_type", "type", "rope_parameters"])
def test_yarn_stretches_the_context_and_scales_cos_and_sin(spelling: str) -> None:
    rope = read_rope(config(**spellings(1e6, "yarn", YARN)[spelling]), 128)
    cos_sin = RotaryEmbedding(rope, torch.device("cpu")).cos_sin(torch.tensor([0]), torch.float32)
    assert max_context(rope, 32768) == 131072
    assert cos_sin[0, 0].tolist() == pytest.approx([1.1386294] * 64)
    assert cos_sin[0, 1].tolist() == [0.0] * 64


@pytest.mark.case("C053")
@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "rotary-7"])
def test_a_rope_type_that_is_not_supported_is_refused_by_name(rope_type: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"rope_type '{rope_type}' is not supported; supported are default, linear, llama3, yarn"):
        read_rope(config(rope_scaling={"type": rope_type, "factor": 2.0}), 64)


def test_a_missing_factor_is_named() -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json: rope_scaling: factor is missing"):
        read_rope(config(rope_scaling={"rope_type": "linear"}), 64)


def test_linear_scaling_divides_all_frequencies_and_stretches_the_context() -> None:
    values = spellings(10000.0, "linear", {"factor": 4.0})["type"]
    assert ratios(16, 10000.0, values) == pytest.approx([0.25] * 8, rel=1e-5)
    assert max_context(read_rope(config(**values), 16), 4096) == 16384


def test_without_scaling_angles_are_position_times_frequency() -> None:
    rotary = RotaryEmbedding(read_rope(config(), 4), torch.device("cpu"))
    cos_sin = rotary.cos_sin(torch.tensor([0, 3]), torch.float32)
    assert cos_sin[1].tolist() == [pytest.approx([math.cos(3), math.cos(0.03)]), pytest.approx([math.sin(3), math.sin(0.03)])]


def test_mscale_sets_yarns_attention_factor() -> None:
    values = spellings(1e6, "yarn", YARN | {"mscale": 1.0, "mscale_all_dim": 0.5})["type"]
    expected = (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    assert read_rope(config(**values), 128).attention_factor == pytest.approx(expected)
