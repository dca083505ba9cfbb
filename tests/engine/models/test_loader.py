import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker_engine.errors import ConfigError
from stoker_engine.models.loader import resolve_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.case("C061")
@pytest.mark.parametrize(
    ("setting", "checkpoint", "device", "expected"),
    [
        ("auto", torch.bfloat16, CPU, torch.bfloat16),
        ("auto", torch.bfloat16, CUDA, torch.bfloat16),
        ("auto", torch.float32, CPU, torch.float32),
        ("auto", torch.float16, CPU, torch.bfloat16),
        ("auto", torch.float16, CUDA, torch.float16),
        ("auto", None, CPU, torch.bfloat16),
        ("float16", torch.bfloat16, CPU, torch.float16),
        ("float32", torch.bfloat16, CPU, torch.float32),
    ],
)
def test_the_dtype_is_the_settings_or_the_checkpoints(setting: str, checkpoint: torch.dtype | None, device: torch.device, expected: torch.dtype) -> None:
    assert resolve_dtype(setting, checkpoint, device) == expected


@pytest.mark.case("C061")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_bfloat16_checkpoint_runs_in_any_dtype_that_is_asked_for(dtype: str, tiny: Any, logits_of: Callable[..., torch.Tensor]) -> None:
    loaded = tiny.write(dtype=torch.bfloat16, initializer_range=0.1).load(dtype=dtype)
    assert loaded.dtype == getattr(torch, dtype)
    expected = tiny.reference.float()(torch.tensor([tiny.prompt])).logits[0]
    assert torch.cosine_similarity(logits_of(loaded), expected).min() > 0.99


def test_a_config_without_dtype_takes_that_of_the_tensors(tiny: Any) -> None:
    tiny.write(dtype=torch.bfloat16).edit_config(dtype=None)
    assert tiny.load().dtype == torch.bfloat16


def test_weights_that_cannot_be_quantized_are_refused_before_they_are_read(tiny: Any) -> None:
    tiny.write()
    (tiny.path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"--quantization: there are no ops for 'int8' here \(the C\+\+ ops compute in bfloat16, .* float32\); use none"):
        tiny.load(quantization="int8", dtype="float32")


@pytest.mark.case("C054")
def test_a_max_model_len_beyond_the_models_context_is_refused_with_both_numbers(tiny: Any) -> None:
    tiny.write()
    with pytest.raises(ConfigError, match="--max-model-len: 513 is beyond the model's context of 512 tokens"):
        tiny.load(max_model_len=513)


@pytest.mark.parametrize(("setting", "expected"), [(None, 512), (512, 512), (100, 100)])
def test_max_model_len_is_the_setting_or_the_models_context(setting: int | None, expected: int, tiny: Any) -> None:
    assert tiny.write().load(max_model_len=setting).max_model_len == expected


def test_progress_rises_to_one(tiny: Any) -> None:
    shares: list[float] = []
    tiny.write().load(shares.append)
    assert shares == sorted(shares)
    assert len(shares) > 10
    assert shares[-1] == 1.0


def test_kv_block_bytes_count_keys_and_values_of_all_layers(tiny: Any) -> None:
    loaded = tiny.write().load(block_size=32, dtype="bfloat16")
    assert loaded.kv_block_bytes == 2 * 2 * 32 * 2 * 8 * 2
    assert loaded.vocab_size == 96


def test_dummy_weights_need_no_files_and_follow_the_seed(tiny: Any, logits_of: Callable[..., torch.Tensor]) -> None:
    tiny.write()
    (tiny.path / "model.safetensors").unlink()
    first, again, other = (logits_of(tiny.load(load_format="dummy", seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.isfinite().all()


def test_importing_the_models_does_not_import_transformers() -> None:
    program = "import sys, stoker_engine.models.loader; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "settings", [{"intermediate_size": 81, "head_dim": 16}, {"hidden_size": 63, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16}]
)
def test_a_model_of_odd_sizes_runs_in_bfloat16_on_torchs_ops(settings: dict[str, int], tiny: Any, logits_of: Callable[..., torch.Tensor]) -> None:
    loaded = tiny.write(dtype=torch.bfloat16, initializer_range=0.1, **settings).load()
    assert loaded.ops.name == "torch"
    expected = tiny.reference.float()(torch.tensor([tiny.prompt])).logits[0]
    assert torch.cosine_similarity(logits_of(loaded), expected).min() > 0.99


def test_quantized_weights_of_odd_sizes_are_refused_with_the_size(tiny: Any) -> None:
    tiny.write(intermediate_size=81, head_dim=16)
    with pytest.raises(ConfigError, match=r"--quantization: .*the C\+\+ ops take the inputs of a linear layer in pairs, one has 81\); use none"):
        tiny.load(quantization="int8", dtype="bfloat16")


def test_a_warm_up_longer_than_any_request_has_its_rotations(tiny: Any, logits_of: Callable[..., torch.Tensor]) -> None:
    tiny.write(head_dim=16, dtype=torch.bfloat16)
    longest, shortest = (tiny.load(max_model_len=length, block_size=32) for length in (None, 2))
    assert shortest.ops.cpu is not None
    assert torch.equal(logits_of(shortest, tiny.prompt[:32]), logits_of(longest, tiny.prompt[:32]))


def test_an_unknown_forced_instruction_set_is_a_configuration_error(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CPU_INSTRUCTION_SET", "avx9")
    with pytest.raises(ConfigError, match="STOKER_CPU_INSTRUCTION_SET: 'avx9' is none of"):
        tiny.write(head_dim=16).load(dtype="bfloat16")
