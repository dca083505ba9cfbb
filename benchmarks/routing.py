"""Two real replicas behind the gateway, by the prompt's beginning and by least request: how many prompt tokens the prefix caches have, and the first token.

shared: 24 documents of 448 tokens, questions of 64 about them, asked at random; one replica's cache has room for 15 documents.
strangers: prompts that share nothing. hot: one document that all questions are about.
"""

import asyncio
import random
import re
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import httpx
from prometheus_client.parser import text_string_to_metric_families

from load import FIRST_ORDINARY_ID, LAST_ORDINARY_ID, stream_completion
from options import Options, read_options
from report import Metric
from rounds import OURS, Line, Metrics
from servers import SERVED_NAME, Server, engine_settings, stoker_server

NUM_DOCUMENTS = {"shared": 24, "hot": 1, "strangers": 0}
"""By the name of the line."""
LINES = list(NUM_DOCUMENTS)
DOCUMENT_LEN, QUESTION_LEN, OUTPUT_LEN = 448, 64, 8
NUM_REQUESTS = 96
CONCURRENCY = 4
NUM_BLOCKS = 512
"""Of 16 tokens."""
LEAST_REQUEST = "LeastRequest"
METRICS = (
    Metric("hit_rate", "prompt tokens from prefix caches", "%", "higher"),
    Metric("ttft_mean", "time to first token, mean", "ms", "lower"),
    Metric("busiest", "requests of the busier replica", "%", "lower"),
)


def prompts(num_documents: int, num_requests: int, number: int) -> list[list[int]]:
    """The same for both, and for every round others."""
    source = random.Random(f"{num_documents} {number}")

    def ids(length: int) -> list[int]:
        return [source.randint(FIRST_ORDINARY_ID, LAST_ORDINARY_ID) for _ in range(length)]

    documents = [ids(DOCUMENT_LEN) for _ in range(num_documents)]
    return [[*(source.choice(documents) if documents else ids(DOCUMENT_LEN)), *ids(QUESTION_LEN)] for _ in range(num_requests)]


def measure(server: Server, num_documents: int, num_requests: int, number: int) -> Metrics:
    with server.running():
        return asyncio.run(_measure(server.url, prompts(num_documents, num_requests, number)))


async def _measure(url: str, asked: list[list[int]]) -> Metrics:
    async with httpx.AsyncClient(trust_env=False) as client:
        endpoints = re.findall(r'num_requests_in_flight\{endpoint="([^"]+)"', (await client.get(f"{url}/metrics")).text)
        before = [await _counts(client, endpoint) for endpoint in endpoints]
        remaining = iter(asked)
        first: list[float] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(_ask(url, remaining, first))
        after = [await _counts(client, endpoint) for endpoint in endpoints]
    hits, queries, requests = ([later[name] - earlier[name] for earlier, later in zip(before, after, strict=True)] for name in _COUNTS)
    return {
        "hit_rate": 100 * sum(hits) / sum(queries),
        "ttft_mean": 1000 * statistics.fmean(first),
        "busiest": 100 * max(requests) / sum(requests),
    }


async def _ask(url: str, remaining: Iterator[list[int]], first: list[float]) -> None:
    for prompt in remaining:
        first.append((await stream_completion(url, SERVED_NAME, prompt, OUTPUT_LEN)).first)


_COUNTS = ("stoker_prefix_cache_hits_total", "stoker_prefix_cache_queries_total", "stoker_requests_total")


async def _counts(client: httpx.AsyncClient, endpoint: str) -> dict[str, float]:
    page = (await client.get(f"http://{endpoint}/metrics")).text
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples if sample.name in _COUNTS}


def lines(options: Options, servers: dict[str, Server]) -> Iterator[Line]:
    for name, num_documents in NUM_DOCUMENTS.items():
        if options.wants(name):
            contestants = {each: partial(measure, server, num_documents, options.scaled(NUM_REQUESTS)) for each, server in servers.items()}
            yield options.measure(f"two replicas, {name}", contestants)


def main() -> None:
    options = read_options(__doc__, LINES)
    settings = engine_settings(options, NUM_BLOCKS)
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for contestant, policy in ((OURS, "PrefixHash"), (LEAST_REQUEST, "LeastRequest")):
            servers[contestant] = stack.enter_context(stoker_server(options.model_uri, settings, replicas=2, traffic={"loadBalancing": policy}))
            servers[contestant].program.stand_still()
        report = options.report("routing")
        for line in lines(options, servers):
            report.add(line, METRICS)
    report.finish()


if __name__ == "__main__":
    main()
