from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton.experts import combine_experts, grouped_matmul
from stoker_kernels.triton.routing import order_by_expert, route

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
# Experts, and those that a token goes to.
EXPERTS = st.sampled_from([(1, 1), (4, 2), (5, 3), (8, 2), (60, 4), (128, 8)])


def test_route_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(
        num_tokens=st.sampled_from([0, 1, 4, 9]), experts=EXPERTS, renormalize=st.booleans(), num_levels=st.sampled_from([0, 2]), seed=st.integers(0, 1000)
    )
    def check(*, num_tokens: int, experts: tuple[int, int], renormalize: bool, num_levels: int, seed: int) -> None:
        logits = randn(seed, num_tokens, experts[0])
        logits = (logits * num_levels).round() if num_levels else logits
        weights, chosen = route(logits, experts[1], renormalize=renormalize)
        expected_weights, expected = reference.route(logits, experts[1], renormalize=renormalize)
        assert torch.equal(chosen, expected)
        torch.testing.assert_close(weights, expected_weights)


def test_grouped_matmul_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(
        num_tokens=st.sampled_from([0, 1, 5, 40]),
        experts=st.sampled_from([(1, 1), (4, 2), (5, 3), (8, 2)]),
        num_outputs=st.sampled_from([1, 64, 130]),
        size=st.sampled_from([16, 100]),
        dtype=DTYPES,
        seed=st.integers(0, 1000),
    )
    def check(num_tokens: int, experts: tuple[int, int], num_outputs: int, size: int, dtype: torch.dtype, seed: int) -> None:
        num_experts, num_chosen = experts
        weight = randn(seed, num_experts, num_outputs, size, dtype=dtype)
        _, chosen = reference.route(randn(seed + 1, num_tokens, num_experts), num_chosen, renormalize=True)
        order = order_by_expert(chosen, num_experts)
        for rows in (num_tokens, num_tokens * num_chosen):
            x = randn(seed + 2, rows, size, dtype=dtype)
            torch.testing.assert_close(grouped_matmul(x, weight, order), reference.grouped_matmul(x, weight, chosen), rtol=1e-2, atol=2e-4 * size)


def test_combine_experts_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor]) -> None:
    @on_random_shapes(num_tokens=st.integers(0, 4), num_chosen=st.integers(1, 8), size=st.sampled_from([1, 64, 1100]), dtype=DTYPES, seed=st.integers(0, 1000))
    def check(num_tokens: int, num_chosen: int, size: int, dtype: torch.dtype, seed: int) -> None:
        outputs, weights = randn(seed, num_tokens * num_chosen, size, dtype=dtype), randn(seed + 1, num_tokens, num_chosen).abs()
        torch.testing.assert_close(combine_experts(outputs, weights), reference.combine_experts(outputs, weights))


def test_a_layer_of_experts_is_the_sum_over_each_tokens_own(randn: Callable[..., Tensor]) -> None:
    hidden, up, down = randn(0, 7, 32), randn(1, 6, 48, 32), randn(2, 6, 32, 48)
    weights, experts = route(randn(3, 7, 6), 2, renormalize=True)
    order = order_by_expert(experts, 6)
    outputs = combine_experts(grouped_matmul(grouped_matmul(hidden, up, order).relu(), down, order), weights)
    for token in range(7):
        each = [weight * (down[expert] @ (up[expert] @ hidden[token]).relu()) for weight, expert in zip(weights[token], experts[token], strict=True)]
        torch.testing.assert_close(outputs[token], sum(each, torch.zeros_like(hidden[token])), rtol=1e-4, atol=1e-3)
