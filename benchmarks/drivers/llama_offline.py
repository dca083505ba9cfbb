"""SETTINGS (a JSON object, what llama_cpp's Llama takes): times greedy generation, one prompt after the other.

{"prompts": [[ids]], "output_len": n} → {"seconds": s}. Runs in the environment that has llama-cpp-python.
"""

import json
import sys
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Any

from line_protocol import serve
from llama_cpp import Llama


def make_handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    llama = Llama(verbose=False, **json.loads(sys.argv[1]))

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        start = perf_counter()
        for prompt in request["prompts"]:
            llama.reset()
            # An endless stream: the end-of-text token does not end it.
            for _ in islice(llama.generate(prompt, temp=0.0), request["output_len"]):
                pass
        return {"seconds": perf_counter() - start}

    return handle


if __name__ == "__main__":
    serve(make_handler)
