"""Seconds from the start of the processes to the first token over HTTP: median of five, after one start that warms the page cache (a peer: one)."""

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager

from bandwidth import Bracketed, bracketed
from options import read_options
from report import Row, figure, publish
from servers import DEMO_MODEL, Server, stoker_server, vllm_server

NUM_STARTS = 5
NUM_PEER_STARTS = 1
"""A peer takes minutes for each."""


def median_start(serve: Callable[[], AbstractContextManager[Server]], num_starts: int) -> Bracketed[float]:
    _start(serve)
    return bracketed(lambda: statistics.median(_start(serve) for _ in range(num_starts)))


def _start(serve: Callable[[], AbstractContextManager[Server]]) -> float:
    with serve() as server:
        return server.seconds_to_first_token


def main() -> None:
    options = read_options(__doc__)
    peer, num_starts = options.peer, options.scaled(NUM_STARTS)
    ours = figure(median_start(lambda: stoker_server(options.model_uri), num_starts))
    theirs = figure(median_start(lambda: vllm_server(peer), NUM_PEER_STARTS)) if peer else None
    rows = [Row(f"process start to first token, {options.model_format}", "s", "lower", ours, theirs)]
    if options.model_uri != DEMO_MODEL:
        gguf = figure(median_start(lambda: stoker_server(DEMO_MODEL), num_starts))
        rows.append(Row("process start to first token, GGUF", "s", "lower", gguf))
    publish("start", rows, options.peer_name)


if __name__ == "__main__":
    main()
