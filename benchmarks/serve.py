"""HTTP at concurrency 1, 8 and 32: streamed completions of random prompts, 128 tokens in, 64 out, 4 requests per client."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bandwidth import Bracketed, bracketed
from load import LoadResult, Workload, run_load
from options import Options, read_options
from report import Figure, Row, publish
from servers import SERVED_NAME, Server, stoker_server, vllm_server

CONCURRENCIES = (1, 8, 32)
REQUESTS_PER_CLIENT = 4


@dataclass(slots=True, frozen=True)
class Metric:
    """One number of a load run."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    attribute: str
    factor: float = 1.0

    def figure(self, measured: Bracketed[LoadResult]) -> Figure:
        return Figure(getattr(measured.value, self.attribute) * self.factor, measured.before, measured.after)


METRICS = (
    Metric("output tokens", "1/s", "higher", "output_tokens_per_second"),
    Metric("time to first token, p50", "ms", "lower", "median_time_to_first_token", 1000.0),
    Metric("time per output token, p50", "ms", "lower", "median_time_per_output_token", 1000.0),
)


def measure(server: Server, options: Options) -> list[Bracketed[LoadResult]]:
    """One result per concurrency, after a warm-up of other prompts."""
    asyncio.run(run_load(server.url, SERVED_NAME, Workload(num_requests=4, concurrency=4, input_len=128, output_len=options.scaled(64), seed=1)))

    def run(workload: Workload) -> LoadResult:
        return asyncio.run(run_load(server.url, SERVED_NAME, workload))

    return [bracketed(partial(run, workload)) for workload in workloads(options)]


def workloads(options: Options) -> list[Workload]:
    output_len = max(2, options.scaled(64))
    return [Workload(REQUESTS_PER_CLIENT * concurrency, concurrency, 128, output_len, seed=100 + concurrency) for concurrency in CONCURRENCIES]


def main() -> None:
    options = read_options(__doc__)
    with stoker_server(options.model_uri) as server:
        ours = measure(server, options)
    theirs: list[Bracketed[LoadResult]] = []
    if options.peer:
        with vllm_server(options.peer) as server:
            theirs = measure(server, options)
    rows = [
        Row(
            f"HTTP, concurrency {concurrency}: {metric.name}",
            metric.unit,
            metric.better,
            metric.figure(ours[index]),
            metric.figure(theirs[index]) if theirs else None,
        )
        for index, concurrency in enumerate(CONCURRENCIES)
        for metric in METRICS
    ]
    publish("serve", rows, options.peer_name)


if __name__ == "__main__":
    main()
