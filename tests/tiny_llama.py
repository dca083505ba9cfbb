"""A random Llama of some 100 kB, with a tokenizer."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel


def write_tiny_llama(directory: Path, vocab_size: int, num_token_ids: int) -> None:
    """`w0`, `w1`, … are its words; 2 layers of 32."""
    hidden, intermediate, heads, kv_heads, head_dim, layers = 32, 64, 4, 2, 8, 2
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(11)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (0.4 if len(shape) == 2 else 0.05) + (1.0 if len(shape) == 1 else 0.0)

    tensors = {"model.embed_tokens.weight": weight(vocab_size, hidden), "model.norm.weight": weight(hidden), "lm_head.weight": weight(vocab_size, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": weight(hidden),
            prefix + "post_attention_layernorm.weight": weight(hidden),
            prefix + "self_attn.q_proj.weight": weight(heads * head_dim, hidden),
            prefix + "self_attn.k_proj.weight": weight(kv_heads * head_dim, hidden),
            prefix + "self_attn.v_proj.weight": weight(kv_heads * head_dim, hidden),
            prefix + "self_attn.o_proj.weight": weight(hidden, heads * head_dim),
            prefix + "mlp.gate_proj.weight": weight(intermediate, hidden),
            prefix + "mlp.up_proj.weight": weight(intermediate, hidden),
            prefix + "mlp.down_proj.weight": weight(hidden, intermediate),
        }
    save_file(tensors, directory / "model.safetensors")
    Tokenizer(WordLevel({f"w{i}": i for i in range(num_token_ids)}, unk_token="w0")).save(str(directory / "tokenizer.json"))
