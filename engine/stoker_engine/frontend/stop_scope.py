"""StopScope: from where on in an answer stop strings count: not in its reasoning."""

from stoker_engine.sampling_params import ReasoningSpan


class StopScope:
    """Fed an answer's text in order. `begin` is the position from which stop strings count, None while that is not known or the reasoning goes on.

    `num_undecided` characters at the text's end may yet become the beginning of reasoning, or count themselves.
    """

    def __init__(self, span: ReasoningSpan) -> None:
        self._span = span
        self._is_inside = span.is_open
        self._length = 0
        self._pending = ""  # while undecided all the text, then what the end of the reasoning may begin in
        self.begin: int | None = None

    @property
    def num_undecided(self) -> int:
        return 0 if self._is_inside or self.begin is not None else len(self._pending)

    def add(self, text: str) -> None:
        if self.begin is not None:
            return
        self._length += len(text)
        self._pending += text
        if not self._is_inside:
            self._decide()
        if self._is_inside:
            self._look_for_end()

    def _decide(self) -> None:
        beginning = self._pending.lstrip()
        if beginning.startswith(self._span.start):
            self._is_inside = True
            self._pending = beginning[len(self._span.start) :]
        elif not self._span.start.startswith(beginning):
            self.begin = 0

    def _look_for_end(self) -> None:
        end = self._span.end
        start = self._pending.find(end)
        if start >= 0:
            self.begin = self._length - len(self._pending) + start + len(end)
        else:
            self._pending = self._pending[max(0, len(self._pending) - len(end) + 1) :]
