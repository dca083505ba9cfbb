from collections.abc import Iterator

import torch
from torch import Tensor

from stoker_engine.models.weights import Parameter, WeightPlacement, load_weights

PARAMETERS = {
    "q": Parameter("qkv", (4, 8)),
    "k": Parameter("qkv", (2, 8), first_row=4),
    "norm": Parameter("norm", (8,)),
    "up": Parameter("up", (6, 8)),
}


PLACEMENT = WeightPlacement(torch.float32, torch.device("cpu"), lambda _: None)


def checkpoint(*names: str) -> Iterator[tuple[str, Tensor]]:
    for index, name in enumerate(names):
        yield name, torch.full(PARAMETERS[name].shape, float(index))


def test_the_parts_of_a_target_lie_in_its_rows_in_whatever_order_they_come() -> None:
    weights = load_weights(PARAMETERS, checkpoint("k", "norm", "q", "up"), PLACEMENT, "test")
    assert {target: list(weight.shape) for target, weight in weights.items()} == {"norm": [8], "qkv": [6, 8], "up": [6, 8]}
    assert weights["qkv"].flatten().tolist() == 32 * [2.0] + 16 * [0.0]


def test_of_two_tensors_of_a_name_the_first_counts() -> None:
    weights = load_weights(PARAMETERS, checkpoint("norm", "norm", "q", "k", "up"), PLACEMENT, "test")
    assert weights["norm"].tolist() == 8 * [0.0]


def test_progress_is_told_at_most_once_for_each_percent_and_ends_at_one() -> None:
    parameters = {f"norm{index}": Parameter(f"norm{index}", (4,)) for index in range(1000)}
    shares: list[float] = []
    load_weights(parameters, ((name, torch.ones(4)) for name in parameters), WeightPlacement(torch.float32, torch.device("cpu"), shares.append), "test")
    assert len(shares) == 100
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
