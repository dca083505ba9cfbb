"""The block formats of GGUF tensors, computed back to float32: what most files have in torch, the rest by the `gguf` package.

Of a model of 135 million values, mostly Q4_1, all take 0.3 s of one core; the package alone takes 4.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader

import torch
from torch import Tensor

from stoker_engine.gguf_metadata import GGUFTensor

Restore = Callable[[Tensor, Tensor], object]
"""(blocks as bytes [B, bytes of a block], values [B, values of a block] to be written)."""

CHUNK_VALUES = 1 << 19
"""Computed at once: 2 MB in float32, which stay in a cache. In [1536, 576], Q4_1, 0.5 ms; with 1 << 15, 2.8; with 1 << 20, 1.0."""
FEW_THREADS = 4
"""Up to this many, one is faster: two wait for each other after every op, and on two busy cores take three times as long."""
_PACKAGE_ROW_BLOCKS = 128
"""The package computes 16 rows at a time, whatever their length: rows of 576 values are too short, ten times slower."""


class UnknownTypeError(ValueError):
    """There is no ggml type of this code."""


class UnreadableTypeError(ValueError):
    """A ggml type that cannot be computed back. The message names it."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """`restore` None: the package knows how."""

    num_values: int
    num_bytes: int
    restore: Restore | None = None


def block_format(type_code: int) -> BlockFormat:
    """The format of a ggml type. Raises UnknownTypeError."""
    known = _FORMATS.get(type_code)
    if known is not None:
        return known
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # 0.1 s to import, for files with rare types only

    try:
        return BlockFormat(*GGML_QUANT_SIZES[GGMLQuantizationType(type_code)])
    except (ValueError, KeyError):
        raise UnknownTypeError(f"{type_code} is no ggml type") from None


def read_values(file: BufferedReader, tensor: GGUFTensor, dtype: torch.dtype) -> Tensor:
    """The values of a tensor, computed in float32 and rounded to `dtype`. Raises EOFError where the file ends early, UnreadableTypeError."""
    layout = block_format(tensor.type_code)
    file.seek(tensor.offset)
    num_blocks, chunk_blocks = math.prod(tensor.shape) // layout.num_values, CHUNK_VALUES // layout.num_values
    values = torch.empty(num_blocks, layout.num_values, dtype=dtype)
    restore = layout.restore or _package_restore(tensor.type_code)
    # The same memory for every chunk, which a cache holds.
    chunk_blocks = min(chunk_blocks, num_blocks)
    all_blocks, all_floats = torch.empty(chunk_blocks, layout.num_bytes, dtype=torch.uint8), torch.empty(chunk_blocks, layout.num_values)
    with _useful_threads():
        for out in torch.split(values, chunk_blocks):
            blocks, floats = all_blocks[: len(out)], all_floats[: len(out)]
            if file.readinto(blocks.numpy().data) != blocks.numel():
                raise EOFError
            try:
                restore(blocks, floats)
            except NotImplementedError:
                raise UnreadableTypeError(f"ggml type {tensor.type_code}") from None
            out.copy_(floats)
    return values.view(tensor.shape)


@contextmanager
def _useful_threads() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    if num_threads > FEW_THREADS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _package_restore(type_code: int) -> Restore:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    quantization = GGMLQuantizationType(type_code)

    def restore(blocks: Tensor, out: Tensor) -> None:
        num_in_rows = len(blocks) // _PACKAGE_ROW_BLOCKS * _PACKAGE_ROW_BLOCKS
        for part, num_rows in ((slice(num_in_rows), num_in_rows // _PACKAGE_ROW_BLOCKS), (slice(num_in_rows, None), len(blocks) - num_in_rows)):
            if num_rows:
                out[part] = torch.from_numpy(dequantize(blocks[part].numpy().reshape(num_rows, -1), quantization)).view(-1, out.shape[1])

    return restore


def _plain(dtype: torch.dtype) -> Restore:
    return lambda blocks, out: out.copy_(blocks.view(dtype))


def _halves(blocks: Tensor, first: int, count: int) -> Tensor:
    """`count` float16 numbers from byte `first` on of each block, in float32 [B, count]."""
    return blocks[:, first : first + 2 * count].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor, out: Tensor) -> None:
    """Bytes [..., N] → out [..., 2, N]: the low halves, then the high ones."""
    out[..., 0, :] = packed & 15
    out[..., 1, :] = packed >> 4


def _restore_q4_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 2:], out.view(-1, 2, 16))
    out.sub_(8).mul_(_halves(blocks, 0, 1))


def _restore_q4_1(blocks: Tensor, out: Tensor) -> None:
    scale_and_minimum = _halves(blocks, 0, 2)
    _nibbles(blocks[:, 4:], out.view(-1, 2, 16))
    out.mul_(scale_and_minimum[:, :1]).add_(scale_and_minimum[:, 1:])


def _restore_q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8)).mul_(_halves(blocks, 0, 1))


def _scales_of_k(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The scales and minima of the 8 parts of a Q4_K or Q5_K block, [B, 8, 1] each: 6 bits in 12 bytes, times two float16 numbers."""
    low_scales, low_minima, high = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat([low_scales & 63, (high & 15) | ((low_scales >> 2) & 48)], 1)
    minima = torch.cat([low_minima & 63, (high >> 4) | ((low_minima >> 2) & 48)], 1)
    factors = _halves(blocks, 0, 2)
    return (factors[:, :1] * scales).unsqueeze(2), (factors[:, 1:] * minima).unsqueeze(2)


def _restore_q4_k(blocks: Tensor, out: Tensor) -> None:
    scales, minima = _scales_of_k(blocks)
    _nibbles(blocks[:, 16:].view(-1, 4, 32), out.view(-1, 4, 2, 32))
    out.view(-1, 8, 32).mul_(scales).sub_(minima)


def _restore_q5_k(blocks: Tensor, out: Tensor) -> None:
    scales, minima = _scales_of_k(blocks)
    _nibbles(blocks[:, 48:].view(-1, 4, 32), out.view(-1, 4, 2, 32))
    parts = out.view(-1, 8, 32)
    for part in range(8):
        parts[:, part] += (blocks[:, 16:48] >> part & 1) * 16
    parts.mul_(scales).sub_(minima)


def _restore_q6_k(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, :128].view(-1, 2, 64), out.view(-1, 2, 2, 64))
    high, quarters = blocks[:, 128:192].view(-1, 2, 32), out.view(-1, 2, 4, 32)
    for quarter in range(4):
        quarters[:, :, quarter] += (high >> 2 * quarter & 3) * 16
    scales = _halves(blocks, 208, 1) * blocks[:, 192:208].view(torch.int8)
    out.sub_(32).view(-1, 16, 16).mul_(scales.unsqueeze(2))


_FORMATS = {
    0: BlockFormat(1, 4, _plain(torch.float32)),
    1: BlockFormat(1, 2, _plain(torch.float16)),
    2: BlockFormat(32, 18, _restore_q4_0),
    3: BlockFormat(32, 20, _restore_q4_1),
    8: BlockFormat(32, 34, _restore_q8_0),
    12: BlockFormat(256, 144, _restore_q4_k),
    13: BlockFormat(256, 176, _restore_q5_k),
    14: BlockFormat(256, 210, _restore_q6_k),
    30: BlockFormat(1, 2, _plain(torch.bfloat16)),
}
"""By ggml's code of the type."""
