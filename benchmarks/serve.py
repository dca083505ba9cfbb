"""HTTP: streamed completions of 128 tokens in, 64 out, at concurrency 1, 8 and 32; and the same with 96 of the 128 tokens shared by all prompts.

With vllm as a peer its own `vllm bench serve` is the client of both servers, else load.py.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from clients import CLIENT, Client, own_client, vllm_client
from load import Workload
from options import Options, read_options
from peers import VARIABLES
from plot import plot_serve
from processes import DRIVERS, running_driver
from report import Metric
from rounds import OURS, Line, Metrics
from servers import Server, engine_settings, stoker_server, vllm_server

CONCURRENCIES = (1, 8, 32)
PREFIX_LENGTHS = {"": 0, "prefix-": 96}
LINES = [f"{kind}c{concurrency}" for kind in PREFIX_LENGTHS for concurrency in CONCURRENCIES]
REQUESTS_PER_CLIENT = 4
MIN_REQUESTS = 8
INPUT_LEN, OUTPUT_LEN = 128, 64
NUM_BLOCKS = 5825
"""2 GiB."""
METRICS = (
    Metric("output", "output tokens", "1/s", "higher"),
    Metric("goodput", "goodput", "requests/s", "higher"),
    Metric("ttft_p50", "time to first token p50", "ms", "lower"),
    Metric("ttft_p99", "time to first token p99", "ms", "lower"),
    Metric("tpot_p50", "time per output token p50", "ms", "lower"),
    Metric("tpot_p99", "time per output token p99", "ms", "lower"),
    Metric("itl_p50", "between tokens p50", "ms", "lower"),
    Metric("itl_p99", "between tokens p99", "ms", "lower"),
)


def workloads(options: Options) -> dict[str, Workload]:
    """By the name of their line, each with a hundred seeds of its own."""
    found: dict[str, Workload] = {}
    for kind, prefix_len in PREFIX_LENGTHS.items():
        for concurrency in CONCURRENCIES:
            num_requests = max(options.scaled(MIN_REQUESTS), options.scaled(REQUESTS_PER_CLIENT) * concurrency)
            seed = 100 * (len(found) + 1)
            found[f"{kind}c{concurrency}"] = Workload(num_requests, concurrency, INPUT_LEN, max(2, options.scaled(OUTPUT_LEN)), seed, prefix_len)
    return found


def once(client: Client, server: Server, workload: Workload, number: int) -> Metrics:
    """The same requests for every server, and for every round others."""
    return client(server, replace(workload, seed=workload.seed + number))


def measured(options: Options, servers: Mapping[str, Server], client: Client) -> Iterator[Line]:
    for server in servers.values():
        client(server, Workload(4, 4, INPUT_LEN, max(2, options.scaled(OUTPUT_LEN))))
    for name, workload in workloads(options).items():
        if options.wants(name):
            title = f"HTTP, concurrency {workload.concurrency}{', shared prefix' if workload.prefix_len else ''}"
            contestants = {each: partial(once, client, server, workload) for each, server in servers.items()}
            yield options.measure(title, contestants)


def main() -> None:
    options = read_options(__doc__, LINES)
    peer = options.peer("vllm")
    with ExitStack() as stack:
        client: Client = own_client
        if peer:
            driver = stack.enter_context(running_driver([str(peer.python), str(DRIVERS / CLIENT)], VARIABLES))
            client = partial(vllm_client, driver, peer)
        servers = {OURS: stack.enter_context(stoker_server(options.model_uri, engine_settings(options, NUM_BLOCKS)))}
        servers[OURS].program.stand_still()
        if peer:
            servers[peer.name] = stack.enter_context(vllm_server(peer, NUM_BLOCKS))
            servers[peer.name].program.stand_still()
        report = options.report("serve")
        for line in measured(options, servers, client):
            report.add(line, METRICS)
    plot_serve(report.finish())


if __name__ == "__main__":
    main()
