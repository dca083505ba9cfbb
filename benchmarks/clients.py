"""Who sends the load over HTTP: load.py, or `vllm bench serve` in vllm's own environment. Both measure the same metrics."""

import asyncio
from collections.abc import Callable, Mapping

from load import Objective, Workload, run_load
from peers import Peer
from processes import Driver
from rounds import Metrics
from servers import SERVED_NAME, Server

OBJECTIVE = Objective(first=1.0, per_token=0.1)
"""A second to the first token, then ten tokens a second: faster than most people read."""
CLIENT = "vllm_client.py"
MEASURED = {"output_throughput": "output", "request_throughput": "requests", "request_goodput": "goodput"} | {
    f"p{percent}_{name}_ms": f"{name}_p{percent}" for name in ("ttft", "tpot", "itl") for percent in (50, 99)
}
"""What `vllm bench serve` calls a metric → what we do."""
Client = Callable[[Server, Workload], Metrics]
"""Sends a workload to a server, which runs for as long as that takes."""


def own_client(server: Server, workload: Workload) -> Metrics:
    with server.running():
        return asyncio.run(run_load(server.url, SERVED_NAME, workload)).metrics(OBJECTIVE)


def vllm_client(driver: Driver, peer: Peer, server: Server, workload: Workload) -> Metrics:
    arguments = [
        *("--base-url", server.url, "--model", str(peer.model), "--served-model-name", SERVED_NAME, "--temperature", "0", "--ignore-eos"),
        *("--dataset-name", "random", "--random-input-len", str(workload.input_len - workload.prefix_len), "--random-prefix-len", str(workload.prefix_len)),
        *("--random-output-len", str(workload.output_len), "--num-prompts", str(workload.num_requests), "--max-concurrency", str(workload.concurrency)),
        *("--seed", str(workload.seed), "--disable-tqdm", "--metric-percentiles", "50,99"),
        *("--goodput", f"ttft:{OBJECTIVE.first * 1000:.0f}", f"tpot:{OBJECTIVE.per_token * 1000:.0f}"),
    ]
    with server.running(), driver.running():
        return parse_bench_serve(driver.ask({"arguments": arguments}), workload.num_requests)


def parse_bench_serve(measured: Mapping[str, object], num_requests: int) -> Metrics:
    """Our names for what `vllm bench serve` measured. Raises RuntimeError where a request failed."""
    if measured["completed"] != num_requests:
        raise RuntimeError(f"{measured['completed']} of {num_requests} requests were answered: {measured.get('errors')}")
    return {ours: float(str(measured[theirs])) for theirs, ours in MEASURED.items()}
