import numpy as np
import pytest
import torch

from stoker_engine.sampling.noise import exponential_noise, position_keys, request_key

SEEDS = (None, 0, 1, -1, 42, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)


def _noise(request_keys: list[int], positions: list[int], num_tokens: int) -> torch.Tensor:
    keys = position_keys(np.array(request_keys, dtype=np.uint64), np.array(positions, dtype=np.int64))
    return exponential_noise(keys[:, None], torch.arange(num_tokens))


@pytest.mark.case("C049")
def test_every_64_bit_seed_and_no_seed_have_noise_of_their_own() -> None:
    keys = {request_key(seed, 0, "request") for seed in SEEDS}
    assert len(keys) == len(SEEDS)


def test_requests_without_a_seed_differ_by_id_and_by_the_engines_seed() -> None:
    keys = {request_key(None, engine_seed, request_id) for engine_seed in (0, 1) for request_id in ("a", "b")}
    assert len(keys) == 4


@pytest.mark.property("P41")
def test_a_seed_means_the_same_noise_for_every_request_and_engine() -> None:
    assert request_key(7, 0, "a") == request_key(7, 1, "b")


@pytest.mark.fault("E6")
def test_noise_is_a_function_of_seed_position_and_token() -> None:
    together = _noise([5, 6, 5], [10, 10, 11], 300)
    for row, (key, position) in enumerate(((5, 10), (6, 10), (5, 11))):
        assert torch.equal(together[row], _noise([key], [position], 300)[0])
    assert len(torch.unique(together)) == together.numel()


def test_noise_follows_the_exponential_distribution() -> None:
    noise = _noise([request_key(seed, 0, "") for seed in range(20)], list(range(20)), 20_000)
    assert noise.min() > 0
    uniform = torch.exp(-noise)
    counts = torch.histc(uniform.flatten(), bins=50, min=0, max=1)
    expected = noise.numel() / 50
    assert ((counts - expected) ** 2 / expected).sum() < 85.4  # chi-square, 49 degrees of freedom, p = 0.001


def test_neighboring_positions_and_tokens_are_uncorrelated() -> None:
    uniform = torch.exp(-_noise([9] * 64, list(range(64)), 4096))
    bound = 4 / uniform.numel() ** 0.5
    for left, right in ((uniform[1:], uniform[:-1]), (uniform[:, 1:], uniform[:, :-1])):
        assert abs(float(torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1])) < bound
