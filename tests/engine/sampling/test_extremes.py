"""Whatever a request may say, the sampler answers with a token it allows, or fails that request alone."""

import itertools
import math
import random

import pytest
import torch

from stoker_engine.sampling_params import SamplingParams

VOCAB = 200
SCALES = (0.0, 1e-30, 1.0, 1e4, 1e30)
EDITS = (
    {},
    {"repetition_penalty": 0.01},
    {"repetition_penalty": 100.0},
    {"frequency_penalty": -2.0, "presence_penalty": -2.0},
    {"repetition_penalty": 0.01, "frequency_penalty": 2.0, "presence_penalty": 2.0},
    {"logit_bias": {1: 100.0, 2: -100.0, 7: 100.0}},
    {"allowed_token_ids": [5]},
    {"allowed_token_ids": [1, 2, 9], "logit_bias": {1: -100.0}, "repetition_penalty": 0.01},
)
DRAWS = (
    {"temperature": 0.0},
    {"temperature": 0.01},
    {"temperature": 2.0},
    {"temperature": 0.01, "top_p": 1e-9},
    {"temperature": 2.0, "top_p": 5e-324},
    {"temperature": 0.01, "top_p": 1.0 - 2**-53},
    {"temperature": 0.01, "top_p": 0.9},
    {"temperature": 2.0, "top_p": 0.9},
    {"temperature": 2.0, "min_p": 1.0},
    {"temperature": 0.01, "min_p": 5e-324},
    {"temperature": 2.0, "top_k": VOCAB - 1, "min_p": 1.0, "top_p": 1e-9},
    {"temperature": 0.01, "top_k": 2**40, "top_p": 0.9},
    {"temperature": 0.01, "top_k": 1},
)


def _logits(rng: random.Random, scale: float) -> list[float]:
    values = [rng.choice([0.0, rng.gauss(0, 1), 1.0, -1.0]) * scale for _ in range(VOCAB)]
    for token in rng.sample(range(20, VOCAB), rng.choice([0, 1, VOCAB - 20])):
        values[token] = -math.inf
    return values


def test_extreme_parameters_give_a_token_that_is_allowed(make_state, sample) -> None:
    rng = random.Random(1)
    cases = [(SamplingParams(seed=i, **edit, **draw), scale) for i, (edit, draw, scale) in enumerate(itertools.product(EDITS, DRAWS, SCALES))]
    rows = [_logits(rng, scale) for _, scale in cases]
    states = [make_state(params, prompt=[1, 2, 3], output=[3] * 500 + [4], vocab_size=VOCAB) for params, _ in cases]
    output = sample(torch.tensor(rows), states)
    assert output.failures == {}
    for token_id, logits, (params, _) in zip(output.token_ids.tolist(), rows, cases, strict=True):
        assert logits[token_id] > -math.inf
        assert token_id in (params.allowed_token_ids or [token_id])


def test_a_row_of_extremes_has_the_same_token_alone(make_state, sample) -> None:
    rng = random.Random(2)
    params = [SamplingParams(seed=i, **edit, **draw) for i, (edit, draw) in enumerate(itertools.product(EDITS, DRAWS))]
    logits = torch.tensor([_logits(rng, rng.choice(SCALES)) for _ in params])
    states = [make_state(p, prompt=[1, 2, 3], output=[3, 3, 4], vocab_size=VOCAB) for p in params]
    together = sample(logits, states).token_ids.tolist()
    assert [sample(logits[i : i + 1], states[i : i + 1]).token_ids.item() for i in range(len(states))] == together


@pytest.mark.parametrize("draw", DRAWS, ids=str)
@pytest.mark.parametrize("value", [1e37, -1e37, 3e38])
def test_logits_near_the_end_of_float32_are_sampled_or_fail_their_row_alone(make_state, sample, draw: dict[str, float], value: float) -> None:
    logits = torch.zeros(3, VOCAB)
    logits[1, 1] = value
    states = [make_state(SamplingParams(seed=1, repetition_penalty=r, **draw), prompt=[1], vocab_size=VOCAB) for r in (1.0, 0.01, 1.0)]
    output = sample(logits, states)
    if value > 0:
        assert list(output.failures) == [1]
        assert "penalties" in output.failures[1]
    else:
        assert output.failures == {}
        assert output.token_ids[1] != 1


def test_a_cold_row_takes_the_largest_logit_however_large(make_state, sample) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 9] = 3e38
    output = sample(logits, [make_state(SamplingParams(temperature=0.01, top_p=0.9), vocab_size=VOCAB)])
    assert (output.failures, output.token_ids.tolist()) == ({}, [9])
