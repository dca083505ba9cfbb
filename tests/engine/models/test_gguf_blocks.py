import io
from typing import cast

import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from stoker_engine.gguf_metadata import GGUFTensor
from stoker_engine.models.gguf_blocks import CHUNK_VALUES, UnknownTypeError, UnreadableTypeError, block_format, read_values

IN_TORCH = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
BY_THE_PACKAGE = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "IQ4_NL", "TQ1_0")


def read(data: bytes, num_values: int, quantization: GGMLQuantizationType, offset: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    file = io.BufferedReader(cast(io.RawIOBase, io.BytesIO(data)))
    return read_values(file, GGUFTensor("tensor", (num_values,), quantization, offset), dtype)


@pytest.mark.parametrize("name", [*IN_TORCH, *BY_THE_PACKAGE])
def test_every_type_has_the_bits_that_the_package_computes(name: str) -> None:
    quantization = GGMLQuantizationType[name]
    values_per_block, block_bytes = GGML_QUANT_SIZES[quantization]
    num_blocks = (CHUNK_VALUES if name in IN_TORCH else CHUNK_VALUES // 16) // values_per_block + 133
    blocks = np.random.default_rng(quantization).integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        values = read(b"header" + blocks.tobytes(), num_blocks * values_per_block, quantization, offset=6)
        expected = dequantize(blocks, quantization).reshape(-1)
    torch.testing.assert_close(values, torch.from_numpy(expected.copy()), rtol=0, atol=0, equal_nan=True)


def test_values_are_rounded_to_the_dtype_that_is_wanted() -> None:
    blocks = np.random.default_rng(1).integers(0, 60, 34 * 1000, dtype=np.uint8).tobytes()
    exact, rounded = (read(blocks, 32000, GGMLQuantizationType.Q8_0, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("name", [*IN_TORCH, *BY_THE_PACKAGE])
def test_every_type_has_the_layout_that_the_package_knows(name: str) -> None:
    layout = block_format(GGMLQuantizationType[name])
    assert (layout.num_values, layout.num_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[name]]


def test_a_file_that_ends_within_a_tensor_is_told() -> None:
    with pytest.raises(EOFError):
        read(bytes(33), 32, GGMLQuantizationType.Q8_0)


def test_a_type_that_cannot_be_computed_back_is_told() -> None:
    with pytest.raises(UnreadableTypeError, match="ggml type 24"):
        read(bytes(33), 33, GGMLQuantizationType.I8)


def test_a_code_of_no_type_is_refused() -> None:
    with pytest.raises(UnknownTypeError, match="99 is no ggml type"):
        block_format(99)
