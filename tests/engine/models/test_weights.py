from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from stoker_engine.errors import ModelLoadError
from stoker_engine.models.weights import LoadedWeights, Parameter, WeightPlacement

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
    weights = LoadedWeights(PARAMETERS, checkpoint("k", "norm", "q", "up"), PLACEMENT, "test")
    assert [list(weights.pop(target).shape) for target in ("norm", "up")] == [[8], [6, 8]]
    assert weights.pop("qkv").flatten().tolist() == 32 * [2.0] + 16 * [0.0]


def test_tensors_are_read_as_far_as_the_weight_that_is_asked_for() -> None:
    read: list[str] = []
    tensors = ((name, tensor) for name, tensor in checkpoint("q", "norm", "k", "up") if not read.append(name))
    weights = LoadedWeights(PARAMETERS, tensors, PLACEMENT, "test")
    weights.pop("qkv")
    assert read == ["q", "norm", "k"]
    weights.pop("norm")
    assert weights.pop("bias", None) is None
    assert read == ["q", "norm", "k"]
    weights.finish()
    assert read == ["q", "norm", "k", "up"]


def test_a_missing_tensor_is_named_by_who_asks_for_it_and_at_the_end() -> None:
    weights = LoadedWeights(PARAMETERS, checkpoint("k", "norm"), PLACEMENT, "test")
    for call in (lambda: weights.pop("qkv"), weights.finish):
        with pytest.raises(ModelLoadError, match=r"^test: tensor q is missing, and 1 more$"):
            call()


def test_of_two_tensors_of_a_name_the_first_counts() -> None:
    weights = LoadedWeights(PARAMETERS, checkpoint("norm", "norm", "q", "k", "up"), PLACEMENT, "test")
    weights.finish()
    assert weights.pop("norm").tolist() == 8 * [0.0]


def test_progress_is_told_at_most_once_for_each_percent_and_ends_at_one() -> None:
    parameters = {f"norm{index}": Parameter(f"norm{index}", (4,)) for index in range(1000)}
    shares: list[float] = []
    LoadedWeights(
        parameters, ((name, torch.ones(4)) for name in parameters), WeightPlacement(torch.float32, torch.device("cpu"), shares.append), "test"
    ).finish()
    assert len(shares) == 100
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
