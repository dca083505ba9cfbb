"""What tells a running api to stop: signals, and the end of its supervisor."""

import asyncio
import logging
import os
import signal

from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.http.drain import Drain, StopStage

logger = logging.getLogger(__name__)


def watch_stop_requests(config: ApiConfig, drain: Drain) -> None:
    """The first signal drains, the second aborts, the third kills; the end of the supervisor aborts. Needs the running event loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, config, drain)
    if config.supervisor_fd is not None:
        loop.add_reader(config.supervisor_fd, _on_supervisor_end, config.supervisor_fd, drain)


def _on_signal(config: ApiConfig, drain: Drain) -> None:
    stage = drain.request_stop()
    logger.info("told to stop: %s, %d in flight", stage.name.lower(), drain.num_in_flight)
    if stage is StopStage.KILLED:
        in_flight = drain.num_in_flight
        message = TerminationMessage(reason="Killed", phase="draining", in_flight_at_start=in_flight, aborted=in_flight)
        write_termination_message(config.termination_message_path, message)
        os._exit(ExitCode.FAILED)


def _on_supervisor_end(fd: int, drain: Drain) -> None:
    if os.read(fd, 1):
        return
    asyncio.get_running_loop().remove_reader(fd)
    logger.warning("the supervisor is gone: stopping, %d in flight", drain.num_in_flight)
    drain.request_abort()
