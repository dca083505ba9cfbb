"""Memory of all processes of a server (proportional set size: shared pages count once) whose KV cache of 1,024 blocks of 16 tokens is full.

Beside vllm with a KV cache of as many bytes. Memory does not move from run to run: one round is enough.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from load import Workload, run_load
from options import read_options
from report import Metric
from rounds import OURS, Measure, Metrics
from servers import SERVED_NAME, Server, engine_settings, stoker_server, vllm_server

LINES = ("full",)
NUM_BLOCKS = 1024
FILLING = Workload(num_requests=18, concurrency=6, input_len=960, output_len=8)
"""18 × 968 tokens fill 1,098 blocks, so that every block has been touched once."""
METRICS = (Metric("full", "1,024 blocks, all used", "GiB", "lower"), Metric("started", "1,024 blocks, after the first token", "GiB", "lower"))
GIB = float(1 << 30)


def memory(serve: Callable[[], AbstractContextManager[Server]], workload: Workload, _number: int) -> Metrics:
    with serve() as server:
        started = server.program.pss_bytes()
        asyncio.run(run_load(server.url, SERVED_NAME, workload))
        return {"started": started / GIB, "full": server.program.pss_bytes() / GIB}


def main() -> None:
    options = read_options(__doc__, LINES, 1)
    workload = Workload(options.scaled(FILLING.num_requests), options.scaled(FILLING.concurrency), FILLING.input_len, FILLING.output_len)
    settings = engine_settings(options, NUM_BLOCKS)
    contestants: dict[str, Measure] = {OURS: partial(memory, lambda: stoker_server(options.model_uri, settings), workload)}
    peer = options.peer("vllm")
    if peer:
        contestants[peer.name] = partial(memory, lambda: vllm_server(peer, NUM_BLOCKS), workload)
    report = options.report("memory")
    report.add(options.measure("memory", contestants), METRICS)
    report.finish()


if __name__ == "__main__":
    main()
