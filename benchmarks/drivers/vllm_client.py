"""Runs `vllm bench serve` in vLLM's own environment, once per request, without importing vLLM anew: {"arguments": [flag, …]} → what it measured."""

import argparse
from collections.abc import Callable
from typing import Any

from line_protocol import serve
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

KEPT = ("completed", "failed", "output_throughput", "request_throughput", "request_goodput", "errors")
KEPT_PREFIXES = ("median_", "p50_", "p99_", "mean_")


def make_handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    parser: argparse.ArgumentParser = FlexibleArgumentParser()
    add_cli_args(parser)

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        measured = main(parser.parse_args(request["arguments"]))
        return {name: value for name, value in measured.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}

    return handle


if __name__ == "__main__":
    serve(make_handler)
