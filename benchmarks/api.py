"""What the api process costs, before a FakeEngineCore whose model takes no time but its pace: 256 streams of chat completions and of completions,
one chunk per token.

The highest rate that the api sustains is searched first: the one at which every token still comes in a chunk of its own. CPU time per token, of all threads of
the api process, is measured at 70 % of it, /livez at 80 %. A first token of a chat of 1,000 tokens is measured alone, less what the engine says that it
took, and the time that the tokenizer takes for the same text in this process, as idle before.
"""

import random
import re
import socket
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import perf_counter, sleep

import msgspec

from load import percentile
from options import Options, read_options
from processes import DRIVERS, Driver, running_driver
from report import Metric
from rounds import OURS, Line, Metrics
from scripted_server import ScriptedServer, scripted_server
from search import highest_sustained
from servers import SERVED_NAME
from stoker_engine.frontend.renderer import Renderer
from stoker_engine.model_files import resolve_model
from stoker_engine.testing import Script
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

NUM_STREAMS = 256
NUM_ROUNDS = 5
SECONDS = 10.0
MIN_SECONDS = 2.0
"""Of a trial: CPU time is told in hundredths of a second."""
WARM_UP_SECONDS = 1.0
START_SECONDS = 4.0
"""More than 256 streams take to begin."""
CPU_SHARE, LIVEZ_SHARE = 0.7, 0.8
"""Of the highest sustained rate."""
SEARCH_SECONDS = 3.0
FIRST_RATE = 20.0
"""Tokens per second of each stream, for a first estimate."""
SUSTAINED = 0.98
"""The share of the paced tokens that comes in chunks of their own where a rate is sustained."""
BUSY = 0.9
"""The share of a core from which on a driver or an engine may be what limits the rate."""
PROBE_SECONDS = 0.02
NUM_FIRST_TOKENS = 50
PROMPT_LEN = 1000
TEXT = "The capital of France is Paris, a city on the Seine; its museums and bridges are known all over the world. How would you spend a day there? "
"""What every stream answers, again and again; every token of it is some text."""
WORD = re.compile(rb" [a-z]{3,9}")
MESSAGES = [{"role": "user", "content": "Tell me about Paris, and go on until I stop you."}]
KINDS: dict[str, tuple[str, dict[str, object], int]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}, 3),
    "completions": ("/v1/completions", {"prompt": "Tell me about Paris:"}, 1),
}
"""Line → path, prompt, and the events of a stream that no token is for: the role, the finish reason, the end."""
LINES = (*KINDS, "livez", "first")
STREAM_METRICS = (
    Metric("cpu", "CPU of the api per token", "µs", "lower"),
    Metric("tokens", "tokens", "1/s", "higher"),
    Metric("highest", "highest sustained rate", "1/s", "higher"),
    Metric("chunks", "chunks per token, of whole streams", "", "higher"),
    Metric("api", "api, of a core", "%", "lower"),
    Metric("engine", "engine, of a core", "%", "lower"),
    Metric("driver", "driver, of a core", "%", "lower"),
)
LIVEZ_METRICS = (
    Metric("p50", "/livez p50", "ms", "lower"),
    Metric("p99", "/livez p99", "ms", "lower"),
    Metric("probes", "probes", "", "higher"),
    Metric("tokens", "tokens", "1/s", "higher"),
)
FIRST_METRICS = (
    Metric("added", "added to the first token p50", "ms", "lower"),
    Metric("ttft", "time to first token p50", "ms", "lower"),
    Metric("engine", "of it in the engine p50", "ms", "lower"),
    Metric("tokenization", "of it tokenization p50", "ms", "lower"),
)


class Counted(msgspec.Struct, frozen=True):
    """What the driver counted: drivers/stream_counter.py."""

    began: float
    seconds: float
    events: int
    total: int
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    def busy(self, name: str) -> float:
        """Cores' worth of a process's time."""
        return self.cpu[name] / self.seconds


@dataclass(slots=True, frozen=True)
class Bench:
    """`reply` is what every stream answers."""

    server: ScriptedServer
    driver: Driver
    reply: list[int]

    def stream(self, kind: str, rate: float, seconds: float) -> Counted:
        """`rate` is tokens per second of all streams together."""
        path, prompt, _ = KINDS[kind]
        pace = rate / NUM_STREAMS
        with self.server.engine(Script(default_reply=self.reply, tokens_per_second=pace)) as engine_pid:
            request = {
                "port": self.server.port,
                "path": path,
                "body": {**prompt, "model": SERVED_NAME, "max_tokens": num_tokens(pace, seconds), "ignore_eos": True, "temperature": 0, "stream": True},
                "num_streams": NUM_STREAMS,
                "warm_up": WARM_UP_SECONDS,
                "seconds": seconds,
                "pids": {"api": self.server.program.process.pid, "engine": engine_pid},
            }
            with self.driver.running():
                return msgspec.convert(self.driver.ask(request), Counted)

    def highest_rate(self, kind: str) -> float:
        """The highest sustained rate, to a fortieth of it. Says where it was not the api that set it."""
        first = self.stream(kind, NUM_STREAMS * FIRST_RATE, SEARCH_SECONDS)
        return highest_sustained(partial(self._is_sustained, kind), first.rate / first.busy("api"))

    def _is_sustained(self, kind: str, rate: float) -> bool:
        counted = self.stream(kind, rate, SEARCH_SECONDS)
        is_sustained = counted.rate >= SUSTAINED * rate
        for name in ("driver", "engine"):
            if not is_sustained and counted.busy(name) > BUSY:
                print(f"{kind}: at {rate:,.0f} tokens/s the {name} is the limit, not the api", file=sys.stderr)
        return is_sustained


def num_tokens(pace: float, seconds: float) -> int:
    """Enough for a stream that begins first to go on until the end of the measurement."""
    return ceil(pace * (START_SECONDS + WARM_UP_SECONDS + seconds))


def stream_metrics(bench: Bench, kind: str, highest: float, seconds: float, _number: int) -> Metrics:
    counted = bench.stream(kind, CPU_SHARE * highest, seconds)
    tokens = NUM_STREAMS * num_tokens(CPU_SHARE * highest / NUM_STREAMS, seconds)
    return {
        "cpu": counted.cpu["api"] / counted.events * 1e6,
        "tokens": counted.rate,
        "highest": highest,
        "chunks": (counted.total - NUM_STREAMS * KINDS[kind][2]) / tokens,
        **{name: 100 * counted.busy(name) for name in ("api", "engine", "driver")},
    }


def livez_metrics(bench: Bench, highest: float, seconds: float, _number: int) -> Metrics:
    with ThreadPoolExecutor(1) as threads:
        streaming = threads.submit(bench.stream, "chat", LIVEZ_SHARE * highest, seconds)
        probes = probe(bench.server, streaming.done)
        counted = streaming.result()
    times = [1000 * took for began, took in probes if counted.began <= began <= counted.began + counted.seconds]
    return {"p50": percentile(times, 50), "p99": percentile(times, 99), "probes": len(times), "tokens": counted.rate}


def probe(server: ScriptedServer, is_over: Callable[[], bool]) -> list[tuple[float, float]]:
    """When each probe began, and how long it took."""
    probes = []
    while not is_over():
        began = perf_counter()
        if server.get("/livez") != 200:
            raise RuntimeError("/livez is not 200")
        probes.append((began, perf_counter() - began))
        sleep(PROBE_SECONDS)
    return probes


def first_metrics(bench: Bench, tokenizer: Tokenizer, count: int, number: int) -> Metrics:
    words = [token_id for token_id in range(tokenizer.vocab_size) if WORD.fullmatch(tokenizer.token_bytes(token_id))]
    source = random.Random(number)
    firsts, engines, tokenizations = [], [], []
    with bench.server.engine(Script(default_reply=bench.reply)):
        before = bench.server.engine_seconds()
        for _ in range(count):
            content, seconds = chat_prompt(tokenizer, [source.choice(words) for _ in range(PROMPT_LEN)])
            tokenizations.append(seconds)
            firsts.append(seconds_to_first_token(bench.server.port, content))
            after = bench.server.engine_seconds()  # not asked again before the next: a page of metrics is work for the api, too
            engines.append(after - before)
            before = after
    medians = {name: 1000 * statistics.median(times) for name, times in (("ttft", firsts), ("engine", engines), ("tokenization", tokenizations))}
    added = [first - engine for first, engine in zip(firsts, engines, strict=True)]
    return {"added": 1000 * statistics.median(added) - medians["tokenization"], **medians}


def chat_prompt(tokenizer: Tokenizer, word_ids: list[int]) -> tuple[str, float]:
    """A message of the first of these words whose chat is PROMPT_LEN tokens long, and how many seconds it took to tokenize that, for the first time: a
    tokenizer remembers words."""
    renderer = Renderer(tokenizer)
    num_around = len(tokenizer.encode_chat(renderer.render_chat([{"role": "user", "content": "x"}]).text)) - 1
    content = b"".join(map(tokenizer.token_bytes, word_ids[: PROMPT_LEN - num_around])).decode()
    text = renderer.render_chat([{"role": "user", "content": content}]).text
    sleep(PROBE_SECONDS)  # as long as the server has done nothing when it is asked
    start = perf_counter()
    num_tokens = len(tokenizer.encode_chat(text))
    seconds = perf_counter() - start
    if num_tokens != PROMPT_LEN:
        raise RuntimeError(f"a chat of {num_tokens} tokens, not {PROMPT_LEN}; its words are no tokens of their own")
    return content, seconds


def seconds_to_first_token(port: int, content: str) -> float:
    """From when the request is written to the first chunk with content, the second of a stream. The connection is there before, and kept open."""
    request = {"model": SERVED_NAME, "messages": [{"role": "user", "content": content}], "max_tokens": 2, "ignore_eos": True, "stream": True}
    body = msgspec.json.encode(request)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        sleep(PROBE_SECONDS)  # for the server to have taken the connection
        start = perf_counter()
        connection.sendall(head.encode() + body)
        received = connection.recv(1 << 16)
        while received.count(b"data: ") < 2:
            received += connection.recv(1 << 16)
        seconds = perf_counter() - start
        while b"[DONE]" not in received:
            received += connection.recv(1 << 16)
    return seconds


def measured(options: Options, bench: Bench, tokenizer: Tokenizer) -> Iterator[tuple[Line, Sequence[Metric]]]:
    seconds = max(MIN_SECONDS, SECONDS * options.scale)
    highest = {kind: bench.highest_rate(kind) for kind in KINDS if options.wants(kind) or (kind == "chat" and options.wants("livez"))}
    for kind in KINDS:
        if options.wants(kind):
            measure = partial(stream_metrics, bench, kind, highest[kind], seconds)
            yield options.measure(f"{NUM_STREAMS} streams of {kind}", {OURS: measure}), STREAM_METRICS
    if options.wants("livez"):
        measure = partial(livez_metrics, bench, highest["chat"], seconds)
        yield options.measure(f"{NUM_STREAMS} streams of chat and a probe", {OURS: measure}), LIVEZ_METRICS
    if options.wants("first"):
        measure = partial(first_metrics, bench, tokenizer, options.scaled(NUM_FIRST_TOKENS))
        yield options.measure(f"a chat of {PROMPT_LEN:,} tokens alone", {OURS: measure}), FIRST_METRICS


def main() -> None:
    options = read_options(__doc__, LINES, NUM_ROUNDS)
    tokenizer = load_tokenizer(resolve_model(options.model_uri))
    with ExitStack() as stack:
        driver = stack.enter_context(running_driver([sys.executable, str(DRIVERS / "stream_counter.py")], {}))
        server = stack.enter_context(scripted_server(options.model_uri, NUM_STREAMS))
        report = options.report("api")
        for line, metrics in measured(options, Bench(server, driver, tokenizer.encode(TEXT) * 10), tokenizer):
            report.add(line, metrics)
    report.finish()


if __name__ == "__main__":
    main()
