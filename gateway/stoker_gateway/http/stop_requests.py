"""What tells a running program to stop: signals, and the end of its supervisor."""

import asyncio
import logging
import os
import signal
from dataclasses import dataclass
from typing import Protocol

from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_gateway.http.drain import Drain, StopStage

logger = logging.getLogger(__name__)


class Stoppable(Protocol):
    """A Drain, or what stands before one."""

    def request_stop(self) -> StopStage: ...

    def request_abort(self) -> None: ...


@dataclass(slots=True, frozen=True)
class StopRequests:
    """The first signal drains, the second aborts, the third kills; the end of the supervisor aborts."""

    stoppable: Stoppable
    drain: Drain
    termination_message_path: str

    def watch(self, supervisor_fd: int | None) -> None:
        """Needs the running event loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        if supervisor_fd is not None:
            loop.add_reader(supervisor_fd, self._on_supervisor_end, supervisor_fd)

    def _on_signal(self) -> None:
        stage = self.stoppable.request_stop()
        in_flight = self.drain.num_in_flight
        logger.info("told to stop: %s, %d in flight", stage.name.lower(), in_flight)
        if stage is StopStage.KILLED:
            message = TerminationMessage(reason="Killed", phase="draining", in_flight_at_start=in_flight, aborted=in_flight)
            write_termination_message(self.termination_message_path, message)
            os._exit(ExitCode.FAILED)

    def _on_supervisor_end(self, fd: int) -> None:
        if os.read(fd, 1):
            return
        asyncio.get_running_loop().remove_reader(fd)
        logger.warning("the supervisor is gone: stopping, %d in flight", self.drain.num_in_flight)
        self.stoppable.request_abort()
