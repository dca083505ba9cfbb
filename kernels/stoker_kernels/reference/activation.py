"""Gated activations (Shazeer 2020) of x [T, 2·I] = gate | up."""

import torch
from torch import Tensor
from torch.nn import functional


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) · up, silu rounded to x's dtype."""
    gate, up = x.chunk(2, dim=-1)
    return (gate.float() * torch.sigmoid(gate.float())).to(x.dtype) * up


def gelu_and_mul(x: Tensor) -> Tensor:
    """gelu(gate) · up with the tanh approximation of gelu, rounded to x's dtype before the product."""
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate.float(), approximate="tanh").to(x.dtype) * up
