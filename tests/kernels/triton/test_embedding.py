from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from stoker_kernels import reference
from stoker_kernels.triton.embedding import embedding, selected_logits

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
SIZES = st.sampled_from([1, 64, 100, 576, 1100])


def test_embedding_equals_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(num_tokens=st.integers(0, 5), size=SIZES, dtype=DTYPES, seed=st.integers(0, 1000))
    def check(num_tokens: int, size: int, dtype: torch.dtype, seed: int) -> None:
        weight = randn(seed, 20, size, dtype=dtype)
        token_ids = torch.randint(20, (num_tokens,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32).to(device)
        assert torch.equal(embedding(token_ids, weight), reference.embedding(token_ids, weight))


def test_selected_logits_equal_the_reference(on_random_shapes: Callable, randn: Callable[..., Tensor], device: str) -> None:
    @on_random_shapes(
        num_rows=st.sampled_from([0, 1, 3, 17, 40]), vocab_size=st.sampled_from([1, 100, 300]), size=SIZES, dtype=DTYPES, seed=st.integers(0, 1000)
    )
    def check(num_rows: int, vocab_size: int, size: int, dtype: torch.dtype, seed: int) -> None:
        hidden, weight = randn(seed, 9, size, dtype=dtype), randn(seed + 1, vocab_size, size, dtype=dtype) / size**0.5
        rows = torch.randint(9, (num_rows,), generator=torch.Generator().manual_seed(seed)).to(device)
        torch.testing.assert_close(selected_logits(hidden, rows, weight), reference.selected_logits(hidden, rows, weight), rtol=1e-5, atol=1e-4)
