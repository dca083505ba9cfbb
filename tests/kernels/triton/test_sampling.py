from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_engine.sampling.candidates import TOP_K_OFF, Truncation, find_candidates, survivors
from stoker_engine.sampling.draw import draw_from_candidates, draw_from_vocabulary
from stoker_engine.sampling.noise import exponential_noise
from stoker_kernels import reference
from stoker_kernels.triton import launch
from stoker_kernels.triton.penalties import apply_penalties
from stoker_kernels.triton.sampling import sample

# temperature, top_k, top_p, min_p
ROWS = st.tuples(
    st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]),
    st.sampled_from([0, 0, 1, 3, 20, 10**6]),
    st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.99]),
    st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0]),
)
SHAPES = {
    "rows": st.lists(ROWS, min_size=1, max_size=3),
    "vocab_size": st.sampled_from([1, 2, 100, 255, 512, 1000, 1500]),
    "num_levels": st.sampled_from([0, 4]),
    "num_masked": st.sampled_from([0, 0, 30]),
    "seed": st.integers(0, 10**6),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(launch.launch_table()["default"], "sample", {"*": {"BLOCK": 512}})


def build(randn: Callable[..., Tensor], device: str, *, rows: list[tuple[float, int, float, float]], **shape: Any) -> tuple[Tensor, ...]:
    """Logits, with equals among them where there are levels, and the rows' parameters and keys."""
    logits = 3 * randn(shape["seed"], len(rows), shape["vocab_size"] + 1)[:, :-1]
    if shape["num_levels"]:
        logits = (logits / shape["num_levels"]).round() * shape["num_levels"]
    logits[:, : min(shape["num_masked"], shape["vocab_size"] - 1)] = -torch.inf
    temperatures, top_k, top_p, min_p = (torch.tensor(values, device=device) for values in zip(*rows, strict=True))
    keys = torch.randint(-(2**63), 2**63 - 1, (len(rows),), generator=torch.Generator().manual_seed(shape["seed"])).to(device)
    return logits, temperatures, top_k.int(), top_p, min_p, keys


@pytest.mark.usefixtures("small_blocks")
def test_sample_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(**SHAPES)
    def check(**shape: Any) -> None:
        arguments = build(randn, device, **shape)
        token_ids, max_logits = sample(*arguments)
        expected_token_ids, expected_max_logits = reference.sample(*arguments)
        assert token_ids.tolist() == expected_token_ids.tolist()
        assert max_logits.tolist() == expected_max_logits.tolist()


def test_sample_of_the_reference_is_what_the_engine_does(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(**SHAPES)
    def check(**shape: Any) -> None:
        logits, temperatures, top_k, top_p, min_p, keys = (tensor.cpu() for tensor in build(randn, "cpu", **shape))
        token_ids, _ = reference.sample(logits, temperatures, top_k, top_p, min_p, keys)
        for row in range(len(logits)):
            one = slice(row, row + 1)
            assert token_ids[one].tolist() == engine_sample(logits[one], temperatures[row], top_k[one], top_p[one], min_p[one], keys[one]).tolist()


def engine_sample(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, keys: Tensor) -> Tensor:
    """The engine's steps for one row."""
    if temperature == 0:
        return logits.argmax(dim=1)
    scaled = (logits - logits.amax(dim=1, keepdim=True)).div_(temperature)
    has_top_k = 0 < int(top_k) < logits.shape[1]
    if not has_top_k and top_p >= 1 and min_p <= 0:
        return draw_from_vocabulary(torch.softmax(scaled, dim=-1), keys)
    k, cuts_first = (int(top_k) if has_top_k else TOP_K_OFF), has_top_k or bool(min_p > 0)
    truncation = Truncation(torch.tensor([k]), top_p.double(), min_p, torch.tensor([cuts_first]), cuts_first, k if has_top_k else 0)
    candidates = find_candidates(scaled, truncation)
    return draw_from_candidates(candidates, survivors(candidates, truncation), keys)


@pytest.mark.usefixtures("small_blocks")
def test_a_row_that_cannot_be_sampled_says_so_and_harms_no_other(randn: Callable[..., Tensor], device: str) -> None:
    logits, *rest = build(randn, device, rows=[(1.0, 5, 0.5, 0.0)] * 4, vocab_size=600, num_levels=0, num_masked=0, seed=0)
    expected = reference.sample(logits, *rest)[0].tolist()
    logits[0, 17], logits[1], logits[2, 5] = torch.nan, -torch.inf, torch.inf
    token_ids, max_logits = sample(logits, *rest)
    assert [str(value) for value in max_logits.tolist()[:3]] == ["nan", "-inf", "inf"]
    assert token_ids[3] == expected[3]
    assert ((token_ids >= 0) & (token_ids < 600)).all()


def test_noise_of_the_reference_is_the_engines() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, counters = torch.randint(-(2**63), 2**63 - 1, (5, 1), generator=generator), torch.arange(-1000, 1000)
    assert torch.equal(reference.exponential_noise(keys, counters), exponential_noise(keys, counters))


def test_penalties_equal_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(
        sizes=st.lists(st.sampled_from([0, 1, 5, 300]), min_size=1, max_size=3), vocab_size=st.sampled_from([300, 777]), seed=st.integers(0, 1000)
    )
    def check(sizes: list[int], vocab_size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        token_ids = torch.cat([torch.randperm(vocab_size, generator=generator)[:size] for size in sizes]).to(device)
        counts = torch.randint(0, 3, token_ids.shape, generator=generator).float().to(device)
        starts = torch.tensor([sum(sizes[:row]) for row in range(len(sizes) + 1)], device=device)
        strengths = torch.rand(len(sizes), 3, generator=generator).to(device) + 0.5
        logits = randn(seed, len(sizes), vocab_size)
        expected = logits.clone()
        reference.apply_penalties(expected, token_ids, counts, starts, strengths)
        apply_penalties(logits, token_ids, counts, starts, strengths)
        torch.testing.assert_close(logits, expected)
