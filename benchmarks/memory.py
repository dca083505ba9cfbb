"""Resident memory (proportional set size of all processes) of a server with a KV cache of 2 GiB, after a small load."""

import asyncio

from bandwidth import bracketed
from load import Workload, run_load
from options import read_options
from report import Row, figure, publish
from servers import SERVED_NAME, Server, stoker_server, vllm_server

GIB = float(1 << 30)


def gibibytes_after_load(server: Server, workload: Workload) -> float:
    asyncio.run(run_load(server.url, SERVED_NAME, workload))
    return server.resident_bytes() / GIB


def main() -> None:
    options = read_options(__doc__)
    workload = Workload(num_requests=options.scaled(16), concurrency=8, input_len=128, output_len=options.scaled(32))
    with stoker_server(options.model_uri) as server:
        ours = figure(bracketed(lambda: gibibytes_after_load(server, workload)))
    theirs = None
    if options.peer:
        with vllm_server(options.peer) as server:
            theirs = figure(bracketed(lambda: gibibytes_after_load(server, workload)))
    publish("memory", [Row("resident memory, KV cache 2 GiB", "GiB", "lower", ours, theirs)], options.peer_name)


if __name__ == "__main__":
    main()
