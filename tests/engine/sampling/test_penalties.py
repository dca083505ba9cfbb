import numpy as np
import pytest
import torch

from stoker_engine.sampling.penalties import Penalties, TokenCounts

LOGITS = [2.0, -1.0, 0.5, 0.0, 3.0]


@pytest.mark.case("C048")
@pytest.mark.parametrize(
    ("prompt", "output", "strengths", "right"),
    [
        ([0, 1], [4, 4], (2.0, 0.25, 0.5), [1.0, -2.0, 0.5, 0.0, 0.5]),
        ([0, 1], [], (2.0, 0.25, 0.5), [1.0, -2.0, 0.5, 0.0, 3.0]),
        ([2, 2, 2, 2], [], (1.0, 2.0, 2.0), LOGITS),
    ],
)
def test_penalties_count_as_the_rules_say_alone_and_beside_a_longer_history(prompt, output, strengths, right) -> None:
    counts = TokenCounts(prompt, output)
    alone = torch.tensor([LOGITS])
    Penalties([0], [counts], [strengths]).apply(alone)
    assert alone.tolist() == [right]
    batch = torch.tensor([LOGITS, LOGITS, LOGITS])
    Penalties([0, 2], [TokenCounts([0, 1, 2, 3, 4] * 50, [3] * 200), counts], [(1.5, 1.0, 1.0), strengths]).apply(batch)
    assert batch[1].tolist() == LOGITS
    assert batch[2].tolist() == right


def test_counts_that_grow_by_token_equal_counts_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    prompt, output = rng.integers(0, 500, 70).tolist(), rng.integers(0, 500, 400).tolist()
    grown = TokenCounts(prompt, [])
    for token_id in output:
        grown.add_output(token_id)
    whole = TokenCounts(prompt, output)
    assert dict(zip(grown.token_ids, grown.output_counts, strict=True)) == dict(zip(whole.token_ids, whole.output_counts, strict=True))


def test_a_forbidden_token_stays_forbidden() -> None:
    logits = torch.tensor([[-torch.inf, 1.0]])
    Penalties([0], [TokenCounts([0], [0, 0])], [(0.5, -2.0, -2.0)]).apply(logits)
    assert logits[0, 0] == -torch.inf
