"""MODEL NUM_THREADS: times transformers' generate in bfloat16, one prompt after the other; {"prompts": [[ids]], "output_len": n} → {"seconds": s}.

Runs in the environment that has transformers.
"""

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from line_protocol import serve
from transformers import AutoModelForCausalLM


def make_handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    torch.set_num_threads(int(sys.argv[2]))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        start = perf_counter()
        for prompt in request["prompts"]:
            ids = torch.tensor([prompt])
            number = request["output_len"]
            with torch.inference_mode():
                output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=number, max_new_tokens=number)
            if output.shape[1] != len(prompt) + number:
                raise RuntimeError(f"asked for {number} tokens, got {output.shape[1] - len(prompt)}")
        return {"seconds": perf_counter() - start}

    return handle


if __name__ == "__main__":
    serve(make_handler)
