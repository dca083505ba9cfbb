"""The sampler against the rules, written out row by row in plain Python."""

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from stoker_engine.sampling.candidates import find_candidates, survivors
from stoker_engine.sampling.random_rows import find_random_rows
from stoker_engine.sampling.sampler import Sampler
from stoker_engine.sampling.sampling_metadata import build_sampling_metadata
from stoker_engine.sampling_params import SamplingParams

VOCAB = 300


@dataclass
class Row:
    logits: list[float]
    params: SamplingParams
    prompt: list[int]
    output: list[int]
    eos: list[int]
    bad_words: list[list[int]] = field(default_factory=list)


def _edited(row: Row) -> list[float]:
    p, logits = row.params, [np.float32(x) for x in row.logits]
    if p.allowed_token_ids is not None:
        logits = [x if i in p.allowed_token_ids else np.float32(-np.inf) for i, x in enumerate(logits)]
    for word in row.bad_words:
        prefix = word[:-1]
        if not prefix or row.output[-len(prefix) :] == prefix:
            logits[word[-1]] = np.float32(-np.inf)
    if len(row.output) < p.min_tokens:
        for token in {*row.eos, *p.stop_token_ids}:
            logits[token] = np.float32(-np.inf)
    for token, bias in (p.logit_bias or {}).items():
        logits[token] += np.float32(bias)
    for token in {*row.prompt, *row.output}:
        x, r = logits[token], np.float32(p.repetition_penalty)
        logits[token] = x / r if x > 0 else x * r
    for token in set(row.output):
        logits[token] -= np.float32(p.frequency_penalty) * np.float32(row.output.count(token))
        logits[token] -= np.float32(p.presence_penalty)
    return [float(x) for x in logits]


def _support(edited: list[float], p: SamplingParams) -> set[int]:
    top = np.float32(max(edited))
    scaled = [float((np.float32(x) - top) / np.float32(p.temperature)) for x in edited]
    weights = {i: math.exp(x) for i, x in enumerate(scaled) if x > -math.inf}
    weights = {i: w for i, w in weights.items() if w >= p.min_p}
    if 0 < p.top_k < len(weights):
        kth = sorted((scaled[i] for i in weights), reverse=True)[p.top_k - 1]
        weights = {i: w for i, w in weights.items() if scaled[i] >= kth}
    if p.top_p < 1.0:
        total, before, kept = sum(weights.values()), 0.0, {}
        for i in sorted(weights, key=lambda i: (-scaled[i], i)):
            if before < p.top_p * total:
                kept[i] = weights[i]
            before += weights[i]
        weights = kept
    return set(weights)


def _random_row(rng: random.Random, *, greedy: bool) -> Row:
    def tokens(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(rng.randint(low, high))]

    output = tokens(0, 30)
    params = SamplingParams(
        temperature=0.0 if greedy else rng.choice([0.3, 0.8, 1.0, 1.7]),
        top_p=rng.choice([1.0, 0.99, 0.9, 0.5, 0.05]),
        top_k=rng.choice([0, -1, 1, 3, 20, 200, 10_000]),
        min_p=rng.choice([0.0, 0.0, 0.02, 0.3]),
        repetition_penalty=rng.choice([1.0, 1.3, 0.7]),
        frequency_penalty=rng.choice([0.0, 0.5, -0.5]),
        presence_penalty=rng.choice([0.0, 0.7, -1.0]),
        min_tokens=rng.choice([0, 8]),
        stop_token_ids=tokens(0, 3),
        logit_bias={token: rng.uniform(-3, 3) for token in tokens(0, 4)} or None,
        allowed_token_ids=rng.choice([None, None, tokens(20, 60)]),
        seed=rng.randrange(1000),
    )
    bad_words = [tokens(1, 1), [*output[-2:], rng.randrange(VOCAB)], tokens(2, 3)]
    logits = [rng.gauss(0, 3) for _ in range(VOCAB)]
    return Row(logits, params, tokens(1, 40), output, tokens(0, 2), bad_words)


def _state(make_state, row: Row):
    return make_state(row.params, prompt=row.prompt, output=row.output, eos=row.eos, bad_words=row.bad_words, vocab_size=VOCAB)


def test_greedy_rows_take_the_largest_logit_after_all_edits(make_state, sample) -> None:
    rng = random.Random(1)
    rows = [_random_row(rng, greedy=True) for _ in range(64)]
    output = sample(torch.tensor([row.logits for row in rows]), [_state(make_state, row) for row in rows])
    assert output.failures == {}
    assert output.token_ids.tolist() == [int(np.argmax(_edited(row))) for row in rows]


def test_random_rows_stay_in_the_support_that_the_rules_leave(make_state, sample) -> None:
    rng = random.Random(2)
    rows = [_random_row(rng, greedy=i % 5 == 0) for i in range(60)]
    states = [_state(make_state, row) for row in rows]
    supports = [{int(np.argmax(_edited(row)))} if row.params.greedy else _support(_edited(row), row.params) for row in rows]
    logits = torch.tensor([row.logits for row in rows])
    for position in range(20):
        token_ids = sample(logits, states, [position] * len(rows)).token_ids.tolist()
        assert all(token in support for token, support in zip(token_ids, supports, strict=True))


@pytest.mark.parametrize("vocab_size", [5, 64, 300, 1000, 5000])
def test_truncation_keeps_exactly_what_the_rules_keep(make_state, vocab_size: int) -> None:
    rng = random.Random(vocab_size)
    params = [
        SamplingParams(top_p=rng.choice([1.0, 0.999, 0.9, 0.4, 0.01]), top_k=rng.choice([0, 1, 2, 4, 30, 500]), min_p=rng.choice([0.0, 0.0, 0.001, 0.2, 1.0]))
        for _ in range(100)
    ]
    params = [p for p in params if p.top_p < 1 or p.min_p > 0 or 0 < p.top_k < vocab_size]
    # Halves make ties common.
    logits = torch.tensor([[rng.choice([round(rng.gauss(0, 3) * 2) / 2, rng.gauss(0, 3), -math.inf]) for _ in range(vocab_size)] for _ in params])
    logits[:, 0] = 1.0
    truncation = find_random_rows([make_state(p, vocab_size=vocab_size) for p in params], vocab_size, torch.device("cpu"))[0].truncation
    candidates = find_candidates(logits - logits.amax(dim=-1, keepdim=True), truncation)
    kept = survivors(candidates, truncation)
    for row, p in enumerate(params):
        assert set(candidates.token_ids[row][kept[row]].tolist()) == _support(logits[row].tolist(), p), p


@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.9}, {"top_k": 12}])
def test_the_pick_follows_the_probabilities(make_state, make_picker, truncation: dict[str, float]) -> None:
    params, num_draws = SamplingParams(temperature=0.7, seed=1, **truncation), 20_000
    logits = torch.randn(1, 600, generator=torch.Generator().manual_seed(3)) * 2
    support = sorted(_support(logits[0].tolist(), params))
    expected = torch.softmax(logits[0, support].double() / 0.7, dim=0) * num_draws
    metadata = build_sampling_metadata([make_state(params, vocab_size=600)] * num_draws, 600, torch.device("cpu"))
    token_ids = Sampler(600, make_picker(600)).sample(logits.repeat(num_draws, 1), metadata, np.arange(num_draws)).token_ids
    counts = torch.from_numpy(np.bincount(token_ids, minlength=600)[support]).double()
    assert counts.sum() == num_draws
    common = expected >= 5
    chi_square = ((counts - expected)[common] ** 2 / expected[common]).sum()
    freedom = int(common.sum())
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.property("P41")
@pytest.mark.fault("E6")
def test_a_row_samples_the_same_alone_and_in_any_batch(make_state, sample) -> None:
    rng = random.Random(4)
    rows = [_random_row(rng, greedy=i % 7 == 0) for i in range(40)]
    states = [_state(make_state, row) for row in rows]
    logits = torch.tensor([row.logits for row in rows])
    positions = [rng.randrange(1000) for _ in rows]
    together = sample(logits, states, positions).token_ids
    for size in (1, 2, 7):
        for first in range(0, 40 - size + 1, size):
            part = slice(first, first + size)
            assert sample(logits[part], states[part], positions[part]).token_ids.tolist() == together[part].tolist()


def test_a_row_of_a_real_vocabulary_has_the_same_tokens_in_every_batch(make_state, sample) -> None:
    vocab_size = 49_152
    logits = torch.randn(6, vocab_size, generator=torch.Generator().manual_seed(5)) * 3
    kinds = [{}, {"top_p": 0.9}, {"top_k": 40}, {"top_p": 0.5, "min_p": 0.01}, {"top_k": 2000}, {"temperature": 0.0}]
    states = [make_state(SamplingParams(seed=i, **kind), vocab_size=vocab_size) for i, kind in enumerate(kinds)]
    for position in range(5):
        together = sample(logits, states, [position] * 6).token_ids.tolist()
        alone = [sample(logits[i : i + 1], states[i : i + 1], [position]).token_ids.item() for i in range(6)]
        assert together == alone


@pytest.mark.fault("B11")
@pytest.mark.case("C061")
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_row_of_bad_logits_fails_alone(make_state, sample, poison: float) -> None:
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(6))
    states = [
        make_state(SamplingParams(temperature=t, seed=3, top_p=p, logprobs=2), vocab_size=VOCAB) for t, p in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.9), (0.0, 1.0))
    ]
    clean = sample(logits, states)
    for bad in range(4):
        poisoned = logits.clone()
        poisoned[bad, 17] = poison
        output = sample(poisoned, states)
        assert list(output.failures) == [bad]
        assert "not finite" in output.failures[bad]
        assert bad not in output.logprobs
        others = [row for row in range(4) if row != bad]
        assert output.token_ids[others].tolist() == clean.token_ids[others].tolist()
        assert all(output.logprobs[row] == clean.logprobs[row] for row in others)


def test_nan_at_a_forbidden_token_still_fails_the_row(make_state, sample) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 5] = math.nan
    output = sample(logits, [make_state(SamplingParams(temperature=0.0, allowed_token_ids=[1, 2]), vocab_size=VOCAB)])
    assert "not finite" in output.failures[0]


def test_a_row_with_nothing_allowed_fails_alone(make_state, sample) -> None:
    nothing = make_state(SamplingParams(temperature=1.0, allowed_token_ids=[4]), bad_words=[[4]], vocab_size=VOCAB)
    output = sample(torch.zeros(2, VOCAB), [nothing, make_state(SamplingParams(temperature=0.0), vocab_size=VOCAB)])
    assert list(output.failures) == [0]
    assert "no token is allowed" in output.failures[0]


@pytest.mark.case("C060")
def test_ids_that_the_tokenizer_lacks_are_never_sampled_nor_listed(make_state, sample) -> None:
    logits = torch.randn(200, 320, generator=torch.Generator().manual_seed(7))
    logits[:, 300:] += 50
    states = [make_state(SamplingParams(temperature=1.0, top_p=p, logprobs=-1, seed=i), vocab_size=300) for i, p in enumerate([1.0, 0.9] * 100)]
    output = sample(logits, states, vocab_size=300)
    assert output.token_ids.max() < 300
    for lists in output.logprobs.values():
        assert max(lists.token_ids[0]) < 300
        assert math.isclose(sum(map(math.exp, lists.logprobs[0][1:])), 1.0, rel_tol=1e-4)


@pytest.mark.fault("C9")
def test_ids_outside_the_vocabulary_in_a_requests_lists_have_no_effect(make_state, sample) -> None:
    params = SamplingParams(
        temperature=0.0, logit_bias={VOCAB: 100.0, 10**9: 100.0}, stop_token_ids=[VOCAB + 5, 2**40], allowed_token_ids=[7, VOCAB], min_tokens=2
    )
    output = sample(torch.zeros(1, VOCAB), [make_state(params, bad_words=[[VOCAB], [2**40]], eos=[VOCAB], vocab_size=VOCAB)])
    assert output.failures == {}
    assert output.token_ids.tolist() == [7]
