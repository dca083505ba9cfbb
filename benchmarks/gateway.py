"""The gateway between two backends that cost nothing and their clients, beside vllm-router and smg, and beside one of the backends alone.

stream: chat streams of 50 events, one each 20 ms, that begin at random times, at the highest rate at which all CPUs together are at most 70 % busy, whoever is
between. requests: plain requests on 32 connections, each asked again as soon as it is answered. What a gateway adds is the difference to the backend alone, of
the same round. drivers/gateway_load.py is backend and clients.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from options import Options, read_options
from peers import ROUTERS, Peer
from processes import DRIVERS, Program
from report import Metric
from rounds import OURS, Measure, Metrics
from servers import POLL_SECONDS, START_SECONDS, free_port
from stoker_engine.settings import to_args
from stoker_gateway.router.config import GatewayConfig

DIRECT = "backend alone"
STREAM, REQUESTS = "stream", "requests"
NUM_ROUNDS = 5

DRIVER = DRIVERS / "gateway_load.py"
MODEL = "fake"
NUM_EVENTS = 50
NUM_CHUNKS = NUM_EVENTS + 1
"""With [DONE]."""
RATES = (5, 10, 20, 30, 40, 60, 80, 100, 130, 160, 200, 240, 280, 320, 360, 400, 500)
"""Streams that begin in a second."""
MAX_BUSY = 0.70
SECONDS = 10.0
TRIAL_SECONDS = 3.0
MIN_SECONDS = 1.0
DRIVER_SECONDS = 120.0
"""A stream that never ends is a failure."""

STREAM_METRICS = (
    Metric("cpu_per_chunk", "its CPU time per chunk", "µs", "lower"),
    Metric("first_p50", "first chunk p50", "ms", "lower"),
    Metric("first_p99", "first chunk p99", "ms", "lower"),
    Metric("first_added_p50", "added to the first chunk p50", "ms", "lower"),
    Metric("first_added_p99", "added to the first chunk p99", "ms", "lower"),
    Metric("delay_p50", "a chunk's way p50", "ms", "lower"),
    Metric("delay_p99", "a chunk's way p99", "ms", "lower"),
    Metric("busy", "all CPUs", "%", "lower"),
)
REQUEST_METRICS = (
    Metric("requests", "requests", "1/s", "higher"),
    Metric("cpu_per_request", "its CPU time per request", "µs", "lower"),
    Metric("request_p50", "request p50", "ms", "lower"),
    Metric("request_p99", "request p99", "ms", "lower"),
)


@dataclass(slots=True, frozen=True)
class Contestant:
    """What the clients ask; `program` is the gateway, None for a backend alone."""

    url: str
    program: Program | None = None

    def cpu_seconds(self) -> float:
        return 0.0 if self.program is None else sum(sum(process.cpu_times()[:2]) for process in self.program.family())


class Baseline:
    """What the backend alone took in this round, by metric."""

    def __init__(self) -> None:
        self.metrics: Metrics = {}


def ask_driver(*args: str) -> dict[str, Any]:
    """Raises RuntimeError with what failed: figures of requests that fail are none."""
    done = subprocess.run([sys.executable, str(DRIVER), *args], capture_output=True, text=True, check=False, timeout=DRIVER_SECONDS)
    answer: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"bad": done.stderr[-2000:]}
    if answer.get("bad"):
        raise RuntimeError(f"{DRIVER.name} {' '.join(args)}: {answer['bad']}")
    return answer


def measured(contestant: Contestant, command: str, *flags: str) -> tuple[dict[str, Any], float]:
    """The driver's answer, and the gateway's CPU seconds meanwhile."""
    with nullcontext() if contestant.program is None else contestant.program.running():
        before = contestant.cpu_seconds()
        return ask_driver(command, contestant.url, *flags), contestant.cpu_seconds() - before


def streams(contestant: Contestant, rate: float, seconds: float) -> tuple[dict[str, Any], float]:
    return measured(contestant, "load", f"--rate={rate}", f"--seconds={seconds}", f"--chunks={NUM_EVENTS}")


def stream_once(contestant: Contestant, baseline: Baseline, rate: float, seconds: float, _number: int = 0) -> Metrics:
    answer, cpu = streams(contestant, rate, seconds)
    first, delay = answer["first_chunk_ms"], answer["chunk_delay_ms"]
    metrics = {"first_p50": first["p50"], "first_p99": first["p99"], "delay_p50": delay["p50"], "delay_p99": delay["p99"], "busy": answer["busy"] * 100}
    if contestant.program is None:
        baseline.metrics = metrics
        return metrics
    added = {f"first_added_{p}": metrics[f"first_{p}"] - baseline.metrics[f"first_{p}"] for p in ("p50", "p99")}
    return {**metrics, **added, "cpu_per_chunk": cpu / (answer["ok"] * NUM_CHUNKS) * 1e6}


def requests_once(contestant: Contestant, seconds: float, _number: int = 0) -> Metrics:
    answer, cpu = measured(contestant, "requests", f"--seconds={seconds}")
    took = answer["request_ms"]
    metrics = {"requests": answer["requests"], "request_p50": took["p50"], "request_p99": took["p99"]}
    return metrics if contestant.program is None else {**metrics, "cpu_per_request": cpu / answer["answered"] * 1e6}


def highest_rate(busy: Callable[[float], float]) -> float:
    """The highest of RATES at which `busy`, the share of all CPUs, is at most MAX_BUSY. Says where it is an end of the table."""
    found = None
    for rate in RATES:
        if busy(rate) > MAX_BUSY:
            break
        found = rate
    if found is None:
        print(f"more than {MAX_BUSY:.0%} of all CPUs are busy even at {RATES[0]} streams/s, the lowest rate: measured at it", file=sys.stderr)
    elif found == RATES[-1]:
        print(f"at {found} streams/s, the highest rate, no more than {MAX_BUSY:.0%} of all CPUs are busy: measured at it", file=sys.stderr)
    return RATES[0] if found is None else found


def busiest(contestants: Mapping[str, Contestant], seconds: float, rate: float) -> float:
    """The share of all CPUs that is busy with the streams of the contestant that takes most."""
    return max(float(streams(contestant, rate, seconds)[0]["busy"]) for contestant in contestants.values())


def command_of(name: str, peer: Peer | None, port: int, backends: Sequence[str], folder: str) -> list[str]:
    if peer is None:
        models = (f"{MODEL}={','.join(url.removeprefix('http://') for url in backends)}",)
        config = GatewayConfig(static_models=models, host="127.0.0.1", port=port, drain_delay="0s", termination_message_path=f"{folder}/message")
        return [sys.executable, "-m", "stoker_gateway.router", *to_args(config)]
    program = [str(peer.python.with_name(name)), *(["launch"] if name == "smg" else [])]
    flags = ["--policy", "round_robin", "--prometheus-port", str(free_port()), "--log-level", "info"]
    return [*program, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *backends, *flags]


@contextmanager
def running(command: Sequence[str], url: str) -> Iterator[Program]:
    """From its first answer to a request on."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        program = Program(command, {}, Path(folder, "log"))
        try:
            wait_until_it_answers(program, url)
            yield program
        finally:
            program.stop()


def wait_until_it_answers(program: Program, url: str) -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    deadline = perf_counter() + START_SECONDS
    while perf_counter() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS):
                return
        except OSError:
            program.check_alive()
            sleep(POLL_SECONDS)
    raise RuntimeError(f"no answer within {START_SECONDS:.0f} s:\n{program.last_words()}")


def start(options: Options, stack: ExitStack) -> dict[str, Contestant]:
    """The backend first: it is what the others of its round are compared with."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-"))
    backends = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    for url in backends:
        stack.enter_context(running([sys.executable, str(DRIVER), "serve", url.rpartition(":")[2]], url))
    contestants = {DIRECT: Contestant(backends[0])}
    for name in (OURS, *sorted(ROUTERS)):
        peer = options.peer(name)
        if name == OURS or peer is not None:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            contestants[name] = Contestant(url, stack.enter_context(running(command_of(name, peer, port, backends, folder), url)))
            contestants[name].program.stand_still()  # type: ignore[union-attr]
    return contestants


def main() -> None:
    options = read_options(__doc__, (STREAM, REQUESTS), NUM_ROUNDS)
    seconds, trial_seconds = max(MIN_SECONDS, SECONDS * options.scale), max(MIN_SECONDS, TRIAL_SECONDS * options.scale)
    report = options.report("gateway")
    with ExitStack() as stack:
        contestants = start(options, stack)
        if options.wants(STREAM):
            rate, baseline = highest_rate(partial(busiest, contestants, trial_seconds)), Baseline()
            measures: dict[str, Measure] = {name: partial(stream_once, each, baseline, rate, seconds) for name, each in contestants.items()}
            report.add(options.measure(f"{rate:g} streams/s", measures), STREAM_METRICS)
        if options.wants(REQUESTS):
            measures = {name: partial(requests_once, each, seconds) for name, each in contestants.items()}
            report.add(options.measure("plain, 32 connections", measures), REQUEST_METRICS)
    report.finish()


if __name__ == "__main__":
    main()
