import io
from typing import cast

import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from stoker_engine.models.gguf_blocks import CHUNK_VALUES, UnknownTypeError, UnreadableTypeError, block_format, read_values

IN_TORCH = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
BY_THE_PACKAGE = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "IQ4_NL", "TQ1_0")


def file_of(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(data)))


@pytest.mark.parametrize("name", [*IN_TORCH, *BY_THE_PACKAGE])
def test_every_type_has_the_bits_that_the_package_computes(name: str) -> None:
    quantization = GGMLQuantizationType[name]
    values_per_block, block_bytes = GGML_QUANT_SIZES[quantization]
    num_blocks = (CHUNK_VALUES if name in IN_TORCH else CHUNK_VALUES // 16) // values_per_block + 133
    blocks = np.random.default_rng(quantization).integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        values = read_values(file_of(b"header" + blocks.tobytes()), 6, num_blocks * values_per_block, quantization)
        expected = dequantize(blocks, quantization).reshape(-1)
    torch.testing.assert_close(values, torch.from_numpy(expected.copy()), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", [*IN_TORCH, *BY_THE_PACKAGE])
def test_every_type_has_the_layout_that_the_package_knows(name: str) -> None:
    layout = block_format(GGMLQuantizationType[name])
    assert (layout.num_values, layout.num_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[name]]


def test_a_file_that_ends_within_a_tensor_is_told() -> None:
    with pytest.raises(EOFError):
        read_values(file_of(bytes(33)), 0, 32, GGMLQuantizationType.Q8_0)


def test_a_type_that_cannot_be_computed_back_is_told() -> None:
    with pytest.raises(UnreadableTypeError, match="ggml type 24"):
        read_values(file_of(bytes(33)), 0, 33, GGMLQuantizationType.I8)


def test_a_code_of_no_type_is_refused() -> None:
    with pytest.raises(UnknownTypeError, match="99 is no ggml type"):
        block_format(99)
