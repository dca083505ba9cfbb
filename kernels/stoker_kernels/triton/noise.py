"""Exp(1) noise as a function of a key and a counter: SplitMix64 (Steele, Lea and Flood 2014), as reference/sampling.py has it, in float32 at the end."""

import triton
import triton.language as tl


@triton.jit
def exponential_noise(key: tl.tensor, counters: tl.tensor) -> tl.tensor:
    """Exp(1) noise, float32, above 0, within some 10⁻⁷ of the noise in float64. key int64, counters int64."""
    mixed = key.to(tl.uint64) + (counters + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    mixed = mixed ^ (mixed >> 31)
    bits = (mixed >> 12).to(tl.int64)
    # The uniform number is (bits + ½) · 2⁻⁵². Near 1 float32 would round it to 1, whose noise is 0: there the distance to 1 is what is kept.
    is_near_1 = bits >= (1 << 51)
    share = tl.where(is_near_1, (1 << 52) - 1 - bits, bits).to(tl.float32)
    share = (share + 0.5) * 2.220446049250313e-16
    rounded = 1.0 - share
    # log(1 − share) without the error of that rounding (Kahan).
    near_1 = tl.where(rounded == 1.0, share, -tl.log(rounded) * (share / tl.where(rounded == 1.0, 1.0, 1.0 - rounded)))
    return tl.where(is_near_1, near_1, -tl.log(share))
