"""Continuous traffic, most of it streamed, with the real `openai` client, from a thread of its own, and what became of each request."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from types import TracebackType

import httpx2
import openai

QUESTION = "What is the capital of France?"
LAST_STREAMS_SECONDS = 60.0
"""How long the streams that are under way when the traffic ends have to finish."""


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """One request, streamed or not; times are of time.monotonic. `error` is None where it came whole."""

    started: float
    ended: float
    text: str
    error: str | None

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Traffic:
    """Requests at a steady rate, whatever becomes of those before: every second one on a connection of its own, the others on kept ones. None is tried again.

    Every fifth one is not streamed, so that five a second are. A reply is whole where it ends with a finish reason; at temperature 0 all texts must be equal.
    """

    def __init__(self, base_url: str, model: str, *, per_second: float = 6.25, max_tokens: int = 16) -> None:
        self._base_url = base_url
        self._model = model
        self._interval = 1 / per_second
        self._max_tokens = max_tokens
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")
        self._outcomes: list[StreamOutcome] = []

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def outcomes(self) -> Sequence[StreamOutcome]:
        """Those that have ended."""
        return tuple(self._outcomes)

    @property
    def failures(self) -> Sequence[StreamOutcome]:
        return tuple(outcome for outcome in self._outcomes if outcome.error is not None)

    def summary(self, what: str) -> str:
        seconds = max((outcome.seconds for outcome in self._outcomes), default=0.0)
        return f"{what}: {len(self._outcomes)} requests, every fifth one not streamed, {len(self.failures)} failed or cut, the longest took {seconds:.1f} s"

    async def _run(self) -> None:
        url = f"{self._base_url}/v1"
        async with (
            openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, default_headers={"Connection": "close"}) as single,
            openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as pooled,
        ):
            streams: set[asyncio.Task[None]] = set()
            due = time.monotonic()
            while not self._stopping.is_set():
                client = single if len(streams) % 2 else pooled
                ask = self._at_once if len(streams) % 5 == 4 else self._streamed
                streams.add(asyncio.create_task(self._keep(ask(client))))
                due += self._interval
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.wait(streams, timeout=LAST_STREAMS_SECONDS)

    async def _keep(self, asked: Awaitable[tuple[str, str | None]]) -> None:
        started, text, finish, error = time.monotonic(), "", None, "the reply ended without a finish reason"
        try:
            text, finish = await asked
        except (openai.OpenAIError, httpx2.HTTPError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            # Also of one that is cancelled because it hangs.
            self._outcomes.append(StreamOutcome(started, time.monotonic(), text, error if finish is None else None))

    async def _streamed(self, client: openai.AsyncOpenAI) -> tuple[str, str | None]:
        """The text and the finish reason."""
        parts, finish = list[str](), None
        stream = await client.chat.completions.create(
            model=self._model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=self._max_tokens, stream=True
        )
        async for chunk in stream:
            for choice in chunk.choices:
                parts.append(choice.delta.content or "")
                finish = choice.finish_reason or finish
        return "".join(parts), finish

    async def _at_once(self, client: openai.AsyncOpenAI) -> tuple[str, str | None]:
        answer = await client.chat.completions.create(
            model=self._model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=self._max_tokens
        )
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason
