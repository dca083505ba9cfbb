"""Seconds from `stoker up -f FILE` to the first token over HTTP, warm page cache: medians of five; beside vllm, of three each, one after the other.

safetensors: the peers' model directory. gguf: the sample file of `make demo`. peer: the first line again, interleaved with vllm's server.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from options import DEMO_MODEL, Options, read_options
from report import Metric
from rounds import NUM_ROUNDS, OURS, Line, Measure, Metrics
from servers import Server, stoker_server, vllm_server

LINES = ("safetensors", "gguf", "peer")
NUM_STARTS = 5
PEER_BLOCKS = 5825
"""2 GiB."""
METRIC = Metric("seconds", "to the first token", "s", "lower")


def start(serve: Callable[[], AbstractContextManager[Server]], _number: int) -> Metrics:
    with serve() as server:
        return {"seconds": server.seconds_to_first_token}


def measured(name: str, contestants: dict[str, Measure], options: Options) -> Line:
    """After one start of ours that warms the page cache; a peer reads the same files."""
    contestants[OURS](0)
    return options.measure(name, contestants)


def lines(options: Options) -> Iterator[Line]:
    """With the defaults of every setting, as a user has them."""
    ours = partial(start, lambda: stoker_server(options.model_uri, options.settings))
    if options.wants("safetensors") and options.model_uri != DEMO_MODEL:
        yield measured("stoker up, safetensors", {OURS: ours}, options)
    if options.wants("gguf"):
        demo = partial(start, lambda: stoker_server(DEMO_MODEL, options.settings))
        yield measured("stoker up, GGUF", {OURS: demo}, options)
    peer = options.peer("vllm")
    if options.wants("peer") and peer:
        theirs = partial(start, lambda: vllm_server(peer, PEER_BLOCKS))
        yield measured("start, safetensors", {OURS: ours, peer.name: theirs}, replace(options, num_rounds=min(NUM_ROUNDS, options.num_rounds)))


def main() -> None:
    options = read_options(__doc__, LINES, NUM_STARTS)
    report = options.report("start")
    for line in lines(options):
        report.add(line, [METRIC])
    report.finish()


if __name__ == "__main__":
    main()
