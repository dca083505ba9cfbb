"""Exp(1) noise as a pure function of (seed, position, token id), so that a request's tokens don't depend on its batch, chunking or preemption.

The generator is SplitMix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators"): a counter times an odd constant, then a
bijective mix of 64 bits. Each (seed, position) starts a stream of its own, and the token id is the counter in it.
"""

import hashlib

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def request_key(seed: int | None, engine_seed: int, request_id: str) -> int:
    """The 64-bit key of a request's noise: from its own seed, or where it has none from the engine's seed and its id. Any integer is a seed of its own."""
    if seed is None:
        name, person = f"{engine_seed}/{request_id}", b"stoker unseeded"
    else:
        name, person = str(seed), b"stoker seeded"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=person).digest(), "little")


def position_keys(request_keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> Tensor:
    """One stream per row. request_keys, positions: [num_rows]; returns int64 [num_rows] on the CPU."""
    mixed = request_keys + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX_1)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX_2)
    return torch.from_numpy((mixed ^ (mixed >> np.uint64(31))).view(np.int64))


def exponential_noise(keys: Tensor, counters: Tensor) -> Tensor:
    """Exp(1) noise, float64, above 0. keys and counters: int64, broadcast against each other."""
    mixed = keys + (counters + 1) * _signed(_GOLDEN)
    mixed = mixed.bitwise_xor_(_shift_right(mixed, 30)).mul_(_signed(_MIX_1))
    mixed = mixed.bitwise_xor_(_shift_right(mixed, 27)).mul_(_signed(_MIX_2))
    mixed = mixed.bitwise_xor_(_shift_right(mixed, 31))
    # 52 bits, in the middle of their interval: never 0 or 1. With 53 the largest would round up to 1, whose noise is 0.
    uniform = _shift_right(mixed, 12).to(torch.float64).add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_()


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """A logical shift: torch has only signed integers of 64 bits, whose shift copies the sign."""
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
