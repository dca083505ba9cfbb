"""A progress bar on stderr for a batch of requests."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stoker_engine.outputs import RequestOutput


class RequestProgress:
    """Counts finished requests and their tokens. Shows nothing where it is not `enabled`."""

    def __init__(self, num_requests: int, *, enabled: bool) -> None:
        columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[speed]}"))
        self._progress = Progress(*columns, console=Console(stderr=True), disable=not enabled)
        self._task = self._progress.add_task("requests", total=num_requests, speed="")
        self._num_tokens = 0

    def __enter__(self) -> "RequestProgress":
        self._progress.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None) -> None:
        self._progress.stop()

    def finished(self, output: RequestOutput) -> None:
        """One request more is done."""
        self._num_tokens += output.num_output_tokens
        elapsed = self._progress.tasks[0].elapsed or 0.0
        speed = f"{self._num_tokens / elapsed:.0f} output tokens/s" if elapsed > 0 else ""
        self._progress.update(self._task, advance=1, speed=speed)
