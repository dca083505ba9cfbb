import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.tokenizer import Tokenizer

REPOSITORY = Path(__file__).parents[3]
SEQUENCE = 1024
TEXT = "The capital of France is Paris, and the capital of Italy is Rome. In 1969, people first walked on the moon; 2 + 2 = 4.\nfor i in range(10):"


def load(path: Path, dtype: str) -> LoadedModel:
    config = EngineConfig(model=ModelConfig(uri=f"file://{path}"), dtype=dtype)
    return load_model(path, config, torch.device("cpu"), lambda _: None)


@pytest.fixture(scope="module")
def token_ids(smollm2_tokenizer: Tokenizer) -> list[int]:
    return smollm2_tokenizer.encode(TEXT * 3)


@pytest.fixture(scope="module")
def exact(smollm2_reference: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = smollm2_reference(torch.tensor([token_ids])).logits[0]
    return logits


def test_float32_logits_equal_transformers(smollm2_path: Path, token_ids: list[int], exact: torch.Tensor, logits_of: Callable[..., torch.Tensor]) -> None:
    logits = logits_of(load(smollm2_path, "float32"), token_ids)
    torch.testing.assert_close(logits, exact, rtol=1e-3, atol=2e-3)
    assert torch.equal(logits.argmax(-1), exact.argmax(-1))


@pytest.mark.parametrize("num_positions", [512, pytest.param(4096, marks=pytest.mark.stress)])
def test_bfloat16_under_teacher_forcing_is_as_close_to_float32_as_transformers_own(
    smollm2_path: Path,
    smollm2_tokenizer: Tokenizer,
    smollm2_reference: Any,
    smollm2_bfloat16_reference: Any,
    logits_of: Callable[..., torch.Tensor],
    num_positions: int,
) -> None:
    """Prose, then code: agreement of the next token's choice, and mean error of the logits."""
    text = (REPOSITORY / "LICENSE").read_text(encoding="utf-8") + inspect.getsource(textwrap)
    token_ids = smollm2_tokenizer.encode(text)
    loaded = load(smollm2_path, "bfloat16")
    agree, error = torch.zeros(2), torch.zeros(2, dtype=torch.float64)
    for start in range(0, num_positions, SEQUENCE):
        sequence = token_ids[start : start + SEQUENCE]
        assert len(sequence) == SEQUENCE
        with torch.inference_mode():
            exact = smollm2_reference(torch.tensor([sequence])).logits[0]
            theirs = smollm2_bfloat16_reference(torch.tensor([sequence])).logits[0].float()
        ours = logits_of(loaded, sequence)
        for index, logits in enumerate((ours, theirs)):
            agree[index] += (logits.argmax(-1) == exact.argmax(-1)).sum()
            error[index] += (logits - exact).abs().mean(dtype=torch.float64)
    (our_agreement, their_agreement), (our_error, their_error) = agree / num_positions, error
    assert our_agreement >= their_agreement - 0.01
    assert our_error <= 1.1 * their_error
