"""A program of this machine, of a replica or the gateway, kept running until it is told to stop."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import read_termination_message
from stoker_operator.backoff import Backoff
from stoker_operator.plan import ProgramPlan
from stoker_operator.process import ChildProcess

HOPELESS_CODES = frozenset({ExitCode.BAD_CONFIG, ExitCode.STARTUP_TIMEOUT, ExitCode.MODEL_LOAD_FAILED})
"""Ends that the next start cannot change by itself."""
HOPELESS_FAILURES = 3
SIGNAL_CODES = 128
"""A process ended by signal n counts as ended with this plus n, as in a shell and in a pod's status."""


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a program ended that should not have. `words` are its own; `delay` is in seconds, until it is started again."""

    component: str
    code: int
    words: str
    delay: float
    hopeless: bool

    def __str__(self) -> str:
        if self.code > SIGNAL_CODES:  # it had no time for words: its last line is about something else
            return f"{self.component} was killed by {signal.Signals(self.code - SIGNAL_CODES).name} (code {self.code})"
        return f"{self.component} ended with code {self.code}" + (f": {self.words}" if self.words else "")


@dataclass(frozen=True, slots=True)
class ProgramEvents:
    """What a program tells its owner: each line it writes, with its component, and each end that should not have been."""

    on_line: Callable[[str, str], None]
    on_exit: Callable[[ProgramExit], None]


class Program:
    """Starts the process, starts it again when it ends, and stops when told. `last_exit` stands while a restart is pending.

    `started` is set when the first start has been tried, `ended` when there will be no other.
    """

    def __init__(self, plan: ProgramPlan, inherited_fds: Sequence[int], events: ProgramEvents) -> None:
        self._plan = plan
        self._inherited_fds = inherited_fds
        self._events = events
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._killing = False
        self._process: ChildProcess | None = None
        self._last_line = ""
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.last_exit: ProgramExit | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    async def keep_running(self) -> None:
        """Returns when the program was told to stop and its process is gone."""
        try:
            while not self._stopping.is_set():
                code = await self._run_once()
                if not self._stopping.is_set():
                    await self._wait_before_restart(code)
        finally:
            self.kill()
            self.ended.set()

    def observe(self, *, ready: bool, now: float) -> None:
        """What was seen of it at `now`, for the restart delays."""
        self._backoff.observe(ready=ready and self.is_running, now=now)

    def stop(self) -> None:
        """SIGTERM, and no restart any more. Said twice to a program that drains, it aborts."""
        self._stopping.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the process and its group, also to one that is being started, and no restart any more."""
        self._stopping.set()
        self._killing = True
        if self._process is not None:
            self._process.kill()

    async def _run_once(self) -> int:
        Path(self._plan.termination_path).unlink(missing_ok=True)
        self._last_line = ""
        try:
            self._process = await ChildProcess.start(self._plan.command, self._plan.environment, self._inherited_fds, self._take_line)
        except OSError as error:
            self._last_line = f"cannot be started: {error}"
            return ExitCode.FAILED
        finally:
            self.started.set()
        self.last_exit = None
        if self._killing:
            self._process.kill()
        elif self._stopping.is_set():
            self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()

    async def _wait_before_restart(self, code: int) -> None:
        delay = self._backoff.delay_after_exit()
        hopeless = code in HOPELESS_CODES or self._backoff.num_failures >= HOPELESS_FAILURES
        self.last_exit = ProgramExit(self._plan.component, code, self._words(), delay, hopeless)
        self._events.on_exit(self.last_exit)
        try:
            await asyncio.wait_for(self._stopping.wait(), timeout=delay)
        except TimeoutError:
            return

    def _words(self) -> str:
        """The process's own words on its end: its termination message, else its last line."""
        message = read_termination_message(self._plan.termination_path)
        return (message.last_error or message.reason) if message else self._last_line

    def _take_line(self, line: str) -> None:
        self._last_line = line or self._last_line
        self._events.on_line(self._plan.component, line)
