"""What tells a running gateway to stop: signals, and the end of its supervisor."""

import asyncio
import logging
import os
import signal

from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_gateway.http.drain import StopStage
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.lifecycle import Lifecycle

logger = logging.getLogger(__name__)


def watch_stop_requests(config: GatewayConfig, lifecycle: Lifecycle) -> None:
    """The first signal drains, the second aborts, the third kills; the end of the supervisor aborts. Needs the running event loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, config, lifecycle)
    if config.supervisor_fd is not None:
        loop.add_reader(config.supervisor_fd, _on_supervisor_end, config.supervisor_fd, lifecycle)


def _on_signal(config: GatewayConfig, lifecycle: Lifecycle) -> None:
    stage = lifecycle.request_stop()
    in_flight = lifecycle.drain.num_in_flight
    logger.info("told to stop: %s, %d in flight", stage.name.lower(), in_flight)
    if stage is StopStage.KILLED:
        message = TerminationMessage(reason="Killed", phase="draining", in_flight_at_start=in_flight, aborted=in_flight)
        write_termination_message(config.termination_message_path, message)
        os._exit(ExitCode.FAILED)


def _on_supervisor_end(fd: int, lifecycle: Lifecycle) -> None:
    if os.read(fd, 1):
        return
    asyncio.get_running_loop().remove_reader(fd)
    logger.warning("the supervisor is gone: stopping, %d in flight", lifecycle.drain.num_in_flight)
    lifecycle.request_abort()
