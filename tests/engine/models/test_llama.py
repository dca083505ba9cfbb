from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker_engine.errors import ModelLoadError

LogitsOf = Callable[..., torch.Tensor]

HEADS = {
    "explicit head_dim": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64},
    "derived head_dim, 6 heads on 3": {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": None, "hidden_size": 48},
    "5 heads on 1": {"num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": None, "hidden_size": 40},
}
FAMILIES = {
    "Llama with every bias": {"family": "Llama", "attention_bias": True, "mlp_bias": True},
    "Qwen2": {"family": "Qwen2"},
    "Mistral without a window": {"family": "Mistral", "sliding_window": None},
    "rope of type linear": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "rope of type yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 10000.0}},
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.case("C057")
@pytest.mark.parametrize("settings", HEADS.values(), ids=HEADS)
def test_greedy_tokens_equal_transformers_for_any_arrangement_of_heads(settings: dict[str, Any], tiny: Any, greedy: Callable[..., list[int]]) -> None:
    tiny.write(**settings)
    assert greedy(tiny.load(), 32) == tiny.reference_greedy(32)


@pytest.mark.parametrize("settings", FAMILIES.values(), ids=FAMILIES)
def test_logits_equal_transformers(settings: dict[str, Any], tiny: Any, logits_of: LogitsOf) -> None:
    tiny.write(**settings)
    torch.testing.assert_close(logits_of(tiny.load()), tiny.reference_logits(), rtol=1e-4, atol=1e-4)


@pytest.mark.case("C053")
def test_logits_with_llama3_rope_equal_transformers_at_position_5000(tiny: Any, logits_of: LogitsOf) -> None:
    heads = {"head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny.write(max_position_embeddings=131072, num_hidden_layers=1, rope_parameters=LLAMA3_ROPE, **heads)
    tiny.prompt = torch.randint(0, 96, (5001,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = tiny.reference(torch.tensor([tiny.prompt]), logits_to_keep=1).logits[0, -1]
    torch.testing.assert_close(logits_of(tiny.load(), tiny.prompt)[-1], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("chunks", [[1] * 37, [16, 16, 5], [7, 1, 1, 20, 8], [36, 1]], ids=str)
def test_a_sequence_in_chunks_gives_the_logits_of_one_forward(chunks: list[int], block_size: int, tiny: Any, logits_of: LogitsOf) -> None:
    loaded = tiny.write().load(block_size=block_size)
    torch.testing.assert_close(logits_of(loaded, chunks=chunks), logits_of(loaded), rtol=1e-4, atol=1e-4)


def test_sequences_in_one_batch_give_the_logits_they_give_alone(tiny: Any, paged_run: Any, logits_of: LogitsOf) -> None:
    loaded, prompt = tiny.write().load(), tiny.prompt
    together = paged_run(loaded, 3, 37)
    first = together.step({0: prompt[:20], 1: prompt[5:6], 2: prompt[:9]})
    second = together.step({2: prompt[9:10], 0: prompt[20:37], 1: prompt[6:7]})
    for sequence, (token_ids, count) in enumerate([(prompt[:37], 20), (prompt[5:7], 1), (prompt[:10], 9)]):
        alone = logits_of(loaded, token_ids)
        torch.testing.assert_close(first[sequence], alone[:count], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(second[sequence], alone[count:], rtol=1e-4, atol=1e-4)


def test_logits_are_float32_in_a_bfloat16_model(tiny: Any, logits_of: LogitsOf) -> None:
    assert logits_of(tiny.write(dtype=torch.bfloat16).load()).dtype == torch.float32


def test_a_bfloat16_model_is_as_close_to_float32_as_transformers_own(tiny: Any, logits_of: LogitsOf) -> None:
    ours = logits_of(tiny.write(dtype=torch.bfloat16, initializer_range=0.1).load())
    theirs = tiny.reference_logits().float()
    tiny.reference.float()
    exact = tiny.reference_logits()
    assert (ours - exact).abs().mean() <= 1.1 * (theirs - exact).abs().mean()


@pytest.mark.case("C058")
def test_tied_embeddings_with_or_without_a_redundant_head_give_the_same_logits(tiny: Any, logits_of: LogitsOf) -> None:
    without = logits_of(tiny.write(tie_word_embeddings=True).load())
    torch.testing.assert_close(without, tiny.reference_logits(), rtol=1e-4, atol=1e-4)
    tiny.edit_tensors(lambda tensors: tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    assert torch.equal(logits_of(tiny.load()), without)


@pytest.mark.case("C058")
def test_an_untied_model_uses_its_own_head(tiny: Any, logits_of: LogitsOf) -> None:
    tiny.write(tie_word_embeddings=False)
    torch.testing.assert_close(logits_of(tiny.load()), tiny.reference_logits(), rtol=1e-4, atol=1e-4)


@pytest.mark.case("C058")
def test_an_untied_model_without_a_head_is_refused(tiny: Any) -> None:
    tiny.write(tie_word_embeddings=False)
    tiny.edit_tensors(lambda tensors: {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"})
    with pytest.raises(ModelLoadError, match=r"tensor lm_head\.weight is missing"):
        tiny.load()
