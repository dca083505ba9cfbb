"""Token ids to vectors, and vectors to logits."""

import torch
from torch import Tensor


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight [vocabulary, H] for token_ids [T]: [T, H]."""
    return weight[token_ids.long()]


def selected_logits(hidden: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """The logits of the chosen rows of hidden [T, H] alone, in float32: [len(rows), vocabulary] for weight [vocabulary, H]."""
    return torch.matmul(hidden[rows.long()].float(), weight.float().T)
