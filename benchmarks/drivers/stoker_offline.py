"""SETTINGS (a JSON object, `model` and what LLM takes): times LLM.generate; {"prompts": [[ids]], "output_len": n} → {"seconds": s}."""

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from line_protocol import serve

from stoker_engine.llm import LLM
from stoker_engine.sampling_params import SamplingParams


def make_handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    llm = LLM(**json.loads(sys.argv[1]))

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        params = SamplingParams(temperature=0.0, max_tokens=request["output_len"], ignore_eos=True)
        start = perf_counter()
        outputs = llm.generate(request["prompts"], params, progress=False)
        seconds = perf_counter() - start
        if any(len(output.outputs[0].token_ids) != request["output_len"] for output in outputs):
            raise RuntimeError(f"asked for {request['output_len']} tokens each, got {[len(output.outputs[0].token_ids) for output in outputs]}")
        return {"seconds": seconds}

    return handle


if __name__ == "__main__":
    serve(make_handler)
