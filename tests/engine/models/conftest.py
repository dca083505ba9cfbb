"""Tiny random models written by transformers, and runs of ours over a paged cache in any split into steps."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.layers.attention import build_attention_metadata
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.worker.kv_cache import allocate_kv_cache

TINY = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
}


PROMPT: list[int] = torch.randint(0, 96, (37,), generator=torch.Generator().manual_seed(3)).tolist()


class TinyModel:
    """A random model of one family in a directory, transformers' view of it and ours."""

    prompt = PROMPT

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reference: Any = None

    def write(self, family: str = "Llama", dtype: torch.dtype = torch.float32, max_shard_size: str = "5GB", **settings: Any) -> "TinyModel":
        import transformers

        transformers.utils.logging.disable_progress_bar()
        torch.manual_seed(7)
        config = getattr(transformers, f"{family}Config")(**(TINY | settings))
        self.reference = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype).eval().requires_grad_(False)
        for name, parameter in self.reference.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
        self.reference.save_pretrained(self.path, max_shard_size=max_shard_size)
        return self

    def load(self, on_progress: Callable[[float], None] = lambda _: None, **settings: Any) -> LoadedModel:
        config = EngineConfig(model=ModelConfig(uri=f"file://{self.path}"), **settings)
        return load_model(self.path, config, torch.device("cpu"), on_progress)

    def edit_config(self, **values: Any) -> None:
        config = json.loads((self.path / "config.json").read_text())
        (self.path / "config.json").write_text(json.dumps(config | values))

    def edit_tensors(self, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
        path = self.path / "model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        save_file(change(tensors), path, metadata={"format": "pt"})

    def reference_logits(self) -> Tensor:
        logits: Tensor = self.reference(torch.tensor([self.prompt])).logits[0]
        return logits

    def reference_greedy(self, count: int) -> list[int]:
        ids = torch.tensor([self.prompt])
        result = self.reference.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, min_new_tokens=count, pad_token_id=0)
        tokens: list[int] = result[0, len(self.prompt) :].tolist()
        return tokens


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return TinyModel(tmp_path)


class PagedRun:
    """Sequences run through one model's paged cache, each with its own scattered blocks."""

    def __init__(self, loaded: LoadedModel, num_sequences: int, max_tokens: int) -> None:
        self._loaded = loaded
        block_size = loaded.kv_cache_shape.block_size
        blocks_each = -(-max_tokens // block_size)
        self._tables = np.random.default_rng(0).permutation(num_sequences * blocks_each).reshape(num_sequences, blocks_each)
        self._caches = allocate_kv_cache(loaded.ops, loaded.kv_cache_shape, num_sequences * blocks_each, loaded.dtype, torch.device("cpu"))
        self._computed = [0] * num_sequences

    def step(self, tokens: dict[int, Sequence[int]]) -> dict[int, Tensor]:
        """Feeds some sequences their next tokens and returns the logits of each of those, [tokens, vocabulary]."""
        block_size = self._loaded.kv_cache_shape.block_size
        counts = [len(ids) for ids in tokens.values()]
        positions = [np.arange(self._computed[s], self._computed[s] + len(ids)) for s, ids in tokens.items()]
        slots = [self._tables[s][p // block_size] * block_size + p % block_size for s, p in zip(tokens, positions, strict=True)]
        metadata = build_attention_metadata(
            self._loaded.ops,
            query_start=np.cumsum([0, *counts]),
            sequence_lengths=[self._computed[s] + count for s, count in zip(tokens, counts, strict=True)],
            block_table=self._tables[list(tokens)],
            slot_mapping=np.concatenate(slots),
            kv_cache=self._caches[0],
        )
        ids = torch.tensor([token for row in tokens.values() for token in row])
        hidden = self._loaded.model.forward(ids, torch.from_numpy(np.concatenate(positions)), metadata, self._caches)
        for sequence, count in zip(tokens, counts, strict=True):
            self._computed[sequence] += count
        return dict(zip(tokens, self._loaded.model.compute_logits(hidden).clone().split(counts), strict=True))


@pytest.fixture(scope="session")
def paged_run() -> type[PagedRun]:
    return PagedRun


@pytest.fixture(scope="session")
def logits_of() -> Callable[..., Tensor]:
    """Logits of every position of one sequence, computed in the given chunks (default: at once)."""

    def run(loaded: LoadedModel, token_ids: Sequence[int] = PROMPT, chunks: Sequence[int] = ()) -> Tensor:
        paged, logits, start = PagedRun(loaded, 1, len(token_ids)), [], 0
        for size in chunks or [len(token_ids)]:
            logits.append(paged.step({0: token_ids[start : start + size]})[0])
            start += size
        return torch.cat(logits)

    return run


@pytest.fixture(scope="session")
def greedy() -> Callable[..., list[int]]:
    """The next `count` tokens after the tiny models' prompt, each the likeliest."""

    def run(loaded: LoadedModel, count: int) -> list[int]:
        paged = PagedRun(loaded, 1, len(PROMPT) + count)
        tokens = [int(paged.step({0: PROMPT})[0][-1].argmax())]
        while len(tokens) < count:
            tokens.append(int(paged.step({0: tokens[-1:]})[0][-1].argmax()))
        return tokens

    return run
