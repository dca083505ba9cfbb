from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.tokenizer import Tokenizer

TEXT = "The capital of France is Paris, and the capital of Italy is Rome. In 1969, people first walked on the moon; 2 + 2 = 4.\nfor i in range(10):"


def load(path: Path, dtype: str) -> LoadedModel:
    config = EngineConfig(model=ModelConfig(uri=f"file://{path}"), dtype=dtype)
    return load_model(path, config, torch.device("cpu"), lambda _: None)


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> Iterator[Any]:
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).eval()


@pytest.fixture(scope="module")
def token_ids(smollm2_tokenizer: Tokenizer) -> list[int]:
    return smollm2_tokenizer.encode(TEXT * 3)


@pytest.fixture(scope="module")
def exact(reference: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = reference(torch.tensor([token_ids])).logits[0]
    return logits


def test_float32_logits_equal_transformers(smollm2_path: Path, token_ids: list[int], exact: torch.Tensor, logits_of: Callable[..., torch.Tensor]) -> None:
    logits = logits_of(load(smollm2_path, "float32"), token_ids)
    torch.testing.assert_close(logits, exact, rtol=1e-3, atol=2e-3)
    assert torch.equal(logits.argmax(-1), exact.argmax(-1))


def test_bfloat16_logits_are_as_close_to_float32_as_transformers_own(
    smollm2_path: Path, reference: Any, token_ids: list[int], exact: torch.Tensor, logits_of: Callable[..., torch.Tensor]
) -> None:
    ours = logits_of(load(smollm2_path, "auto"), token_ids)
    rotary = reference.model.rotary_emb
    inverse_frequencies = rotary.inv_freq.clone()
    reference.to(torch.bfloat16)
    # `to` rounds them too, which loading in bfloat16 does not.
    rotary.inv_freq = inverse_frequencies
    with torch.inference_mode():
        theirs = reference(torch.tensor([token_ids])).logits[0].float()
    assert (ours - exact).abs().mean() <= 1.1 * (theirs - exact).abs().mean()
