"""AnswerTokens: what an answer has cost, read off its bytes as they pass."""

import re

KEPT_BYTES = 2048
"""Of its end: usage stands there, in streams and elsewhere."""

BYTES_PER_TOKEN = 4
"""About so many a token has."""

# Within a text of the answer, quotes have a backslash before them.
_TOTAL = re.compile(rb'(?<!\\)"total_tokens"\s*:\s*(\d{1,12})')
_INPUT = re.compile(rb'(?<!\\)"input_tokens"\s*:\s*(\d{1,12})')
_OUTPUT = re.compile(rb'(?<!\\)"output_tokens"\s*:\s*(\d{1,12})')
_EVENT = b"data:"


class AnswerTokens:
    """As the answer's own usage says. Without it, or where it was cut off: one for BYTES_PER_TOKEN of the request, and one for each event of a stream or
    for as many bytes of another answer."""

    __slots__ = ("_end", "_input", "_num_bytes", "_num_events")

    def __init__(self) -> None:
        self._end = b""
        self._num_bytes = 0
        self._num_events = 0
        self._input = 0

    def add(self, piece: bytes) -> None:
        if self._num_events == 0 and (found := _INPUT.search(piece)):
            self._input = int(found[1])  # Anthropic's streams say it at their beginning
        self._num_bytes += len(piece)
        self._num_events += piece.count(_EVENT)
        self._end = piece[-KEPT_BYTES:] if len(piece) >= KEPT_BYTES else (self._end + piece)[-KEPT_BYTES:]

    def total(self, request_bytes: int) -> int:
        """Of a request that was so long."""
        if totals := _TOTAL.findall(self._end):
            return int(totals[-1])
        if outputs := _OUTPUT.findall(self._end):
            inputs = _INPUT.findall(self._end)
            return int(outputs[-1]) + (int(inputs[-1]) if inputs else self._input)
        return (self._input or request_bytes // BYTES_PER_TOKEN) + (self._num_events or self._num_bytes // BYTES_PER_TOKEN)
