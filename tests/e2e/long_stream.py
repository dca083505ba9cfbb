"""One long stream, from a thread of its own, and how it ended."""

import json
import threading
import time
from types import TracebackType
from typing import Any

import httpx


class LongStream:
    """A chat of `num_tokens` tokens with whatever serves at `base_url`."""

    def __init__(self, base_url: str, model: str, num_tokens: int) -> None:
        self.ended = 0.0
        """By time.time(); 0 while it goes on."""
        self.events: list[str] = []
        self._url = f"{base_url}/v1/chat/completions"
        self._body = {"model": model, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": num_tokens, "stream": True, "ignore_eos": True}
        self._thread = threading.Thread(target=self._run, name="stream")

    def __enter__(self) -> "LongStream":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._thread.join()

    def wait(self) -> None:
        self._thread.join()

    @property
    def has_begun(self) -> bool:
        return len(self.events) > 1

    @property
    def error(self) -> dict[str, Any]:
        """The error that the server sent in mid-stream; empty where it sent none."""
        found: dict[str, Any] = next((json.loads(event)["error"] for event in self.events if event.startswith('{"error"')), {})
        return found

    @property
    def is_whole(self) -> bool:
        finished = [choice["finish_reason"] for event in self.events if event.startswith('{"id"') for choice in json.loads(event)["choices"]]
        return not self.error and self.events[-1:] == ["[DONE]"] and finished[-1:] == ["length"]

    def _run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=60) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))
        self.ended = time.time()
