from collections.abc import Iterator

import torch
from torch import Tensor

from stoker_engine.models.weights import Parameter, WeightPlacement, load_weights, make_dummy_weights

PARAMETERS = {
    "q": Parameter("qkv", (4, 8)),
    "k": Parameter("qkv", (2, 8), first_row=4),
    "norm": Parameter("norm", (8,)),
    "up": Parameter("up", (6, 8)),
}


def placement(events: list[str]) -> WeightPlacement:
    def place(target: str, weight: Tensor) -> Tensor:
        events.append(f"place {target} {list(weight.shape)}")
        return weight.flatten()

    return WeightPlacement(torch.float32, torch.device("cpu"), lambda _: None, place)


def checkpoint(events: list[str], *names: str) -> Iterator[tuple[str, Tensor]]:
    for index, name in enumerate(names):
        events.append(f"read {name}")
        yield name, torch.full(PARAMETERS[name].shape, float(index))


def test_a_weight_is_placed_when_its_last_part_is_read_and_before_the_next_is() -> None:
    events: list[str] = []
    load_weights(PARAMETERS, checkpoint(events, "k", "norm", "q", "up"), placement(events), "test")
    assert events == ["read k", "read norm", "place norm [8]", "read q", "place qkv [6, 8]", "read up", "place up [6, 8]"]


def test_what_a_placement_returns_is_what_the_model_gets() -> None:
    weights = load_weights(PARAMETERS, checkpoint([], "k", "norm", "q", "up"), placement([]), "test")
    assert {target: list(weight.shape) for target, weight in weights.items()} == {"norm": [8], "qkv": [48], "up": [48]}
    assert weights["qkv"].tolist() == 32 * [2.0] + 16 * [0.0]


def test_of_two_tensors_of_a_name_the_first_counts() -> None:
    events: list[str] = []
    weights = load_weights(PARAMETERS, checkpoint(events, "norm", "norm", "q", "k", "up"), placement(events), "test")
    assert weights["norm"].tolist() == 8 * [0.0]
    assert sum(event.startswith("place") for event in events) == 3


def test_dummy_weights_are_placed_too() -> None:
    events: list[str] = []
    make_dummy_weights(PARAMETERS, placement(events), seed=1)
    assert events == ["place qkv [6, 8]", "place norm [8]", "place up [6, 8]"]


def test_progress_is_told_at_most_once_for_each_percent_and_ends_at_one() -> None:
    parameters = {f"norm{index}": Parameter(f"norm{index}", (4,)) for index in range(1000)}
    shares: list[float] = []
    load_weights(parameters, ((name, torch.ones(4)) for name in parameters), WeightPlacement(torch.float32, torch.device("cpu"), shares.append), "test")
    assert len(shares) == 100
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
