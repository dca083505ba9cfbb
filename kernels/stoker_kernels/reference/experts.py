"""Mixture of experts: which experts a token goes to, the products with their weights, and the weighted sum."""

import torch
from torch import Tensor


def route(router_logits: Tensor, num_chosen: int, *, renormalize: bool) -> tuple[Tensor, Tensor]:
    """The num_chosen likeliest experts of each token, the first of equals, and their softmax probabilities, whose sum is made 1 by renormalize.

    router_logits: [T, experts] → weights float32 [T, num_chosen], experts int32 [T, num_chosen], the likeliest first.
    """
    probabilities = router_logits.float().softmax(dim=-1)
    order = probabilities.argsort(dim=-1, descending=True, stable=True)[:, :num_chosen]
    weights = probabilities.gather(1, order)
    if renormalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, order.int()


def grouped_matmul(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """The product of each pair of a token and an expert: x [P / n, K] (pair p reads row p // n), weight [experts, N, K], experts [P] → [P, N].

    In float32, rounded to x's dtype at the end.
    """
    pairs_per_row = experts.numel() // max(len(x), 1)
    output = x.new_empty((experts.numel(), weight.shape[1]))
    for pair, expert in enumerate(experts.flatten().tolist()):
        output[pair] = (weight[expert].float() @ x[pair // pairs_per_row].float()).to(x.dtype)
    return output


def combine_experts(outputs: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · output over each token's experts, in float32: outputs [T · n, H], weights [T, n] → [T, H]."""
    return torch.einsum("tnh,tn->th", outputs.view(*weights.shape, outputs.shape[1]).float(), weights.float()).to(outputs.dtype)
