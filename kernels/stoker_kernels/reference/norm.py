"""RMSNorm (Zhang and Sennrich 2019)."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x²) + ε) · weight over the last dimension, the normalized x rounded to its dtype before the product."""
    x_float = x.float()
    normalized = x_float * torch.rsqrt(x_float.square().mean(-1, keepdim=True) + epsilon)
    return normalized.to(x.dtype) * weight


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """residual += x, in place, then the norm of residual."""
    residual.add_(x)
    return rms_norm(residual, weight, epsilon)
