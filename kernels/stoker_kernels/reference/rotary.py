"""Rotary position embedding (Su et al. 2021), half-split layout."""

from torch import Tensor


def rotary_embedding(x: Tensor, cos_sin: Tensor) -> None:
    """Rotates the pairs (x[i], x[i + D/2]) of each head of x [T, heads, ≥ D] by their angles, in place.

    cos_sin: [T, 2, D/2], in x's dtype; every product is rounded to it. What lies past D in a head is left alone.
    """
    cos, sin = cos_sin[:, None, 0], cos_sin[:, None, 1]
    half = cos.shape[-1]
    first, second = x[..., :half].clone(), x[..., half : 2 * half].clone()
    x[..., :half] = first * cos - second * sin
    x[..., half : 2 * half] = second * cos + first * sin
