"""A signal to stop that comes while the program is still being imported: there is nothing to drain."""

import signal
from types import FrameType

from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import TerminationMessage, write_termination_message


def stop_at_once_on_signals(termination_message_path: str) -> None:
    """Until the server takes the signals over. As process 1 of a container, without handlers, it would not even hear them."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        write_termination_message(termination_message_path, TerminationMessage(reason="Aborted", phase="starting"))
        raise SystemExit(ExitCode.OK)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
