import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
import torch

from stoker_engine.core.model_runner_output import NOTHING_ALLOWED
from stoker_engine.sampling.grammar_mask import apply_bitmasks, rows_of
from stoker_engine.sampling.sampler import Sampler, SamplerOutput
from stoker_engine.sampling.sampling_metadata import build_sampling_metadata
from stoker_engine.sampling_params import SamplingParams

VOCAB = 101
"""No multiple of 8: the last byte of a bitmask is used in part."""


def bitmask(token_ids: Collection[int], vocab_size: int = VOCAB) -> bytes:
    return sum(1 << token_id for token_id in token_ids).to_bytes(-(-vocab_size // 8), "little")


@pytest.fixture
def sample_rows(make_state: Callable[..., Any], make_picker: Callable[..., Any]) -> Callable[..., SamplerOutput]:
    def run(logits: torch.Tensor, params: list[SamplingParams], bitmasks: dict[int, bytes]) -> SamplerOutput:
        states = [make_state(one, request_id=f"r{row}", vocab_size=VOCAB) for row, one in enumerate(params)]
        metadata = build_sampling_metadata(states, VOCAB, torch.device("cpu"))
        return Sampler(VOCAB, make_picker(VOCAB)).sample(logits.clone(), metadata, np.arange(len(params)), bitmasks)

    return run


@pytest.mark.property("P27")
@pytest.mark.parametrize("seed", range(20))
def test_a_masked_row_samples_as_one_whose_forbidden_logits_are_gone(sample_rows: Callable[..., SamplerOutput], seed: int) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    logits = torch.randn((6, VOCAB), generator=generator) * 3
    params = [
        SamplingParams(
            temperature=rng.choice((0.0, 0.7, 2.0)),
            top_k=rng.choice((0, 5)),
            top_p=rng.choice((1.0, 0.8)),
            presence_penalty=rng.choice((0.0, 1.0)),
            seed=seed,
            logprobs=rng.choice((None, 0, 2)),
        )
        for _ in range(6)
    ]
    allowed = {row: set(rng.sample(range(VOCAB), rng.randint(3, 60))) for row in rng.sample(range(6), rng.randint(1, 6))}
    gone = logits.clone()
    for row, token_ids in allowed.items():
        gone[row, [token_id for token_id in range(VOCAB) if token_id not in token_ids]] = -torch.inf
    masked = sample_rows(logits, params, {row: bitmask(token_ids) for row, token_ids in allowed.items()})
    plain = sample_rows(gone, params, {})
    assert masked.token_ids.tolist() == plain.token_ids.tolist()
    assert masked.logprobs == plain.logprobs
    assert all(int(masked.token_ids[row]) in token_ids for row, token_ids in allowed.items())


def test_a_bitmask_forbids_what_is_past_its_end() -> None:
    logits = torch.zeros((2, VOCAB))
    apply_bitmasks(logits, {1: bitmask({3, 15}, vocab_size=16)})
    assert torch.isfinite(logits[0]).all()
    assert torch.isfinite(logits[1]).nonzero().flatten().tolist() == [3, 15]


def test_a_row_whose_grammar_allows_nothing_fails_alone(sample_rows: Callable[..., SamplerOutput]) -> None:
    output = sample_rows(torch.randn((2, VOCAB), generator=torch.Generator().manual_seed(0)), [SamplingParams(temperature=0.0)] * 2, {0: bitmask(())})
    assert output.failures == {0: NOTHING_ALLOWED}


@pytest.mark.fault("C5")
def test_a_bitmask_goes_to_its_request_wherever_that_stands() -> None:
    masks = {"a": b"\x01", "b": b"\x02"}
    assert rows_of(masks, ["free", "b", "a"]) == {1: b"\x02", 2: b"\x01"}
    assert rows_of(masks, ["free"]) == {}
    assert rows_of({}, ["a"]) == {}
