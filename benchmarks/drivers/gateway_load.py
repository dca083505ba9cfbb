"""A backend that answers as the OpenAI API does and costs little, and its clients, to measure what a gateway between them adds.

    gateway_load.py serve PORT                             answers POST with JSON, or with events where "stream" is true; GET with 200
    gateway_load.py load URL --rate R --seconds S          streams that begin at random times, R a second, of --chunks events, one each --interval ms
    gateway_load.py requests URL --connections C --seconds S       plain requests, on each connection one after the other

Each event has the backend's clock, which is the clients': the machine is one. The clients print one JSON line: `bad` in it is what failed, and `busy`
the share of all CPUs, from when as many streams are open as the rate makes until the last one begins.
"""

import argparse
import asyncio
import json
import random
from time import monotonic
from urllib.parse import urlsplit

import httptools
import psutil
import uvloop

MODEL = "fake"
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
}
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "stoker"}]}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
CHUNKS, INTERVAL_MS = 50, 20.0
"""Of a stream by default: a gateway may pass on only the fields that it knows."""
STREAM_SECONDS = 30.0
"""A stream that takes longer than it should, by this, has failed."""
RATE = "requests"
OK = 200


def plain(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


PLAIN = plain(ANSWER)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(index: int) -> bytes:
    delta = {"role": "assistant", "content": "token "} if index == 0 else {"content": "token "}
    data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "sent": monotonic()}
    return b"data: " + json.dumps(data | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode() + b"\n\n"


class Backend(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._path = b""
        self._streaming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._streaming is not None:
            self._streaming.cancel()

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not body:
            self._transport.write(plain(MODELS if self._path.startswith(b"/v1/models") else {}))
            return
        request = json.loads(body)
        if request.get("stream"):
            self._streaming = asyncio.create_task(self._stream(request))
        else:
            self._transport.write(PLAIN)

    async def _stream(self, request: dict[str, float]) -> None:
        self._transport.write(STREAM)
        due = monotonic()
        for index in range(int(request.get("max_tokens", CHUNKS))):
            due += request.get("interval_ms", INTERVAL_MS) / 1000
            await asyncio.sleep(max(0.0, due - monotonic()))
            self._transport.write(chunk(event(index)))
        self._transport.write(chunk(DONE) + b"0\r\n\r\n")


async def serve(arguments: argparse.Namespace) -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", arguments.port, backlog=4096)
    await server.serve_forever()


class Stream:
    """What one stream's client saw, in seconds: until the first event, and each event's way."""

    def __init__(self) -> None:
        self.outcome = "cut"
        self.first = 0.0
        self.delays: list[float] = []

    async def run(self, host: str, port: int, request: bytes, seconds: float) -> None:
        """Takes at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._read(host, port, request)
        except TimeoutError:
            self.outcome = f"failed: no end within {seconds:g} s"
        except OSError as error:
            self.outcome = f"failed: {error}"

    async def _read(self, host: str, port: int, request: bytes) -> None:
        start = monotonic()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request)
        status = await reader.readline()
        if b" 200 " not in status:
            self.outcome = f"failed: {status.decode()}"
            writer.close()
            return
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                now = monotonic()
                self.first = self.first or now - start
                self.delays.append(now - json.loads(line[6:])["sent"])
            elif line.startswith(b"data: [DONE]"):
                self.outcome = "ok"
                break
        writer.close()


async def load(arguments: argparse.Namespace) -> dict[str, object]:
    url, dice = urlsplit(arguments.url), random.Random(0)
    streams, tasks = list[Stream](), list[asyncio.Task[None]]()
    stream_seconds = arguments.chunks * arguments.interval / 1000
    warm_up = asyncio.get_running_loop().call_later(min(arguments.seconds / 2, stream_seconds), psutil.cpu_percent)
    due = begin = monotonic()
    while due < begin + arguments.seconds:
        due += dice.expovariate(arguments.rate)
        await asyncio.sleep(max(0.0, due - monotonic()))
        fields = {"stream": True, "max_tokens": arguments.chunks, "interval_ms": arguments.interval}
        content = f"{dice.random()} {'x ' * 200}"
        request = request_bytes(url.netloc, content, **fields)
        streams.append(Stream())
        tasks.append(asyncio.create_task(streams[-1].run(str(url.hostname), url.port or 80, request, stream_seconds + STREAM_SECONDS)))
    warm_up.cancel()
    busy = psutil.cpu_percent() / 100
    await asyncio.gather(*tasks)
    good = [stream for stream in streams if stream.outcome == "ok"]
    bad = [stream.outcome for stream in streams if stream.outcome != "ok"]
    first = percentiles([stream.first - arguments.interval / 1000 for stream in good])
    delay = percentiles([delay for stream in good for delay in stream.delays])
    return {
        "requests": len(streams),
        "ok": len(good),
        "bad": {outcome: bad.count(outcome) for outcome in bad},
        "first_chunk_ms": first,
        "chunk_delay_ms": delay,
        "busy": busy,
    }


def request_bytes(host: str, content: str, **fields: object) -> bytes:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + (b"Connection: close\r\n" if fields else b"") + b"\r\n" + body


def percentiles(values: list[float]) -> dict[str, float]:
    """In milliseconds."""
    values = sorted(values)
    return {f"p{p}": round(values[min(len(values) - 1, len(values) * p // 100)] * 1000, 3) for p in (50, 95, 99)} if values else {}


class Answers:
    """What all connections saw: the seconds of the answers that count, how many there were in all, and what failed first."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.num_answered = 0
        self.bad = ""
        self.is_over = False

    def fail(self, reason: str) -> None:
        self.bad = self.bad or reason


class Requester(asyncio.Protocol):
    """Asks again as soon as it is answered."""

    def __init__(self, request: bytes, answers: Answers) -> None:
        self._request = request
        self._answers = answers
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._asked = monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._answers.fail(f"no answer in HTTP: {error}")
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answers.is_over:
            self._answers.fail(f"a connection was closed: {exc or 'without a reason'}")

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() != OK:
            self._answers.fail(f"answered with {self._parser.get_status_code()}")
            self._transport.abort()
            return
        self._answers.num_answered += 1
        self._answers.seconds.append(monotonic() - self._asked)
        self._ask()


async def ask_again_and_again(arguments: argparse.Namespace) -> dict[str, object]:
    url, loop, answers = urlsplit(arguments.url), asyncio.get_running_loop(), Answers()
    request = request_bytes(url.netloc, "hi")
    opened = [await loop.create_connection(lambda: Requester(request, answers), url.hostname, url.port) for _ in range(arguments.connections)]
    await asyncio.sleep(arguments.seconds / 4)
    answers.seconds.clear()
    start = monotonic()
    await asyncio.sleep(arguments.seconds)
    rate, of_all = len(answers.seconds) / (monotonic() - start), percentiles(answers.seconds)
    answers.is_over = True
    for transport, _ in opened:
        transport.abort()
    return {RATE: rate, "answered": answers.num_answered, "request_ms": of_all, "bad": answers.bad or ("" if of_all else "no request was answered")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    backend = commands.add_parser("serve")
    backend.add_argument("port", type=int)
    streams = commands.add_parser("load")
    streams.add_argument("--rate", type=float, default=50.0, help="streams that begin in a second")
    streams.add_argument("--chunks", type=int, default=CHUNKS)
    streams.add_argument("--interval", type=float, default=INTERVAL_MS)
    requests = commands.add_parser(RATE)
    requests.add_argument("--connections", type=int, default=32)
    for client in (streams, requests):
        client.add_argument("url")
        client.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.command == "serve":
        uvloop.run(serve(arguments))
    else:
        print(json.dumps(uvloop.run(load(arguments) if arguments.command == "load" else ask_again_and_again(arguments))))


if __name__ == "__main__":
    main()
