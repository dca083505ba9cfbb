import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.tokenizer import Tokenizer
from stoker_kernels.cpu.build import instruction_sets

REPOSITORY = Path(__file__).parents[3]
SEQUENCE = 512
TEXT = "The capital of France is Paris, and the capital of Italy is Rome. In 1969, people first walked on the moon; 2 + 2 = 4.\nfor i in range(10):"

FORCED = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.layers.attention import build_attention_metadata
from stoker_engine.models.loader import load_model
from stoker_engine.worker.kv_cache import allocate_kv_cache

path, token_ids, target = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
cpu, count = torch.device("cpu"), len(token_ids)
loaded = load_model(path, EngineConfig(model=ModelConfig(uri=f"file://{path}"), dtype="bfloat16", block_size=16), cpu, lambda _: None)
print(loaded.ops.name)
blocks = np.arange(-(-count // 16))[None]
caches = allocate_kv_cache(loaded.ops, loaded.kv_cache_shape, blocks.size, loaded.dtype, cpu)
metadata = build_attention_metadata(
    loaded.ops, query_start=[0, count], sequence_lengths=[count], block_table=blocks, slot_mapping=range(count), kv_cache=caches[0]
)
hidden = loaded.model.forward(torch.tensor(token_ids), torch.arange(count), metadata, caches)
torch.save(loaded.model.compute_logits(hidden).clone(), target)
"""


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


class Closeness:
    """How close two ways of computing in bfloat16, ours and transformers', come to float32: sums over the positions of some sequences.

    Each has the agreement of the likeliest token, the mean error of the logits and the largest.
    """

    def __init__(self) -> None:
        self.sums = torch.zeros(2, 3, dtype=torch.float64)
        self.num_positions = 0

    def add(self, ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> None:
        self.num_positions += len(exact)
        for index, logits in enumerate((ours, theirs)):
            errors = (logits - exact).abs()
            agreement = logits.argmax(-1) == exact.argmax(-1)
            self.sums[index] += torch.stack((agreement.double().sum(), errors.mean(1).double().sum(), errors.amax(1).double().sum()))

    def check(self, factor: float, agreement_lost: float) -> None:
        ours, theirs = self.sums / self.num_positions
        assert ours[0] >= theirs[0] - agreement_lost
        assert (ours[1:] <= factor * theirs[1:]).all(), (ours, theirs)


@pytest.fixture(scope="module")
def sequences(smollm2_tokenizer: Tokenizer) -> list[list[int]]:
    """Prose, then code."""
    token_ids = smollm2_tokenizer.encode((REPOSITORY / "LICENSE").read_text(encoding="utf-8") + inspect.getsource(textwrap))
    return [token_ids[start : start + SEQUENCE] for start in range(0, len(token_ids) - SEQUENCE, SEQUENCE)]


@pytest.fixture(scope="module")
def logits_of_transformers(smollm2_reference: Any, smollm2_bfloat16_reference: Any, sequences: list[list[int]]) -> Callable[..., list[torch.Tensor]]:
    """`logits_of_transformers(index)` of a sequence: in bfloat16, and in float32. Those of the last are kept."""

    @lru_cache(maxsize=1)
    def compute(index: int) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [model(torch.tensor([sequences[index]])).logits[0].float() for model in (smollm2_bfloat16_reference, smollm2_reference)]

    return compute


@pytest.mark.parametrize("num_sequences", [1, pytest.param(8, marks=pytest.mark.stress)])
def test_bfloat16_under_teacher_forcing_is_as_close_to_float32_as_transformers_own(
    smollm2_path: Path,
    sequences: list[list[int]],
    logits_of_transformers: Callable[..., list[torch.Tensor]],
    logits_of: Callable[..., torch.Tensor],
    num_sequences: int,
) -> None:
    loaded, closeness = load(smollm2_path, "bfloat16"), Closeness()
    for index in reversed(range(num_sequences)):
        closeness.add(logits_of(loaded, sequences[index]), *logits_of_transformers(index))
    closeness.check(factor=1.1, agreement_lost=0.01)


@pytest.mark.parametrize("num_positions", [48, pytest.param(SEQUENCE, marks=pytest.mark.stress)])
@pytest.mark.parametrize("instruction_set", instruction_sets()[1:])
def test_a_process_forced_to_another_instruction_set_is_as_close(
    smollm2_path: Path,
    sequences: list[list[int]],
    logits_of_transformers: Callable[..., list[torch.Tensor]],
    tmp_path: Path,
    instruction_set: str,
    num_positions: int,
) -> None:
    program = [sys.executable, "-c", FORCED, smollm2_path, json.dumps(sequences[0][:num_positions]), tmp_path / "logits"]
    environment = os.environ | {"STOKER_CPU_INSTRUCTION_SET": instruction_set}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=True, cwd=Path(__file__).parent)
    assert done.stdout.strip() == f"cpu ({instruction_set})"
    closeness = Closeness()
    closeness.add(torch.load(tmp_path / "logits"), *(logits[:num_positions] for logits in logits_of_transformers(0)))
    # Among 48 positions a single one weighs much.
    closeness.check(factor=1.1 if num_positions == SEQUENCE else 1.4, agreement_lost=0.01 if num_positions == SEQUENCE else 0.03)
