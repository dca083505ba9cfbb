"""Stands in for stoker-engine: runs until SIGTERM, and writes down what happens to it.

Arguments: --events FILE --termination-message-path FILE --exit-code N --supervisor-fd N. With an exit code it ends at once, with a message.
"""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--events", type=Path, required=True)
parser.add_argument("--termination-message-path", type=Path, required=True)
parser.add_argument("--exit-code", type=int)
parser.add_argument("--supervisor-fd", type=int, required=True)
options = parser.parse_args()


def record(event: str) -> None:
    with options.events.open("a") as file:
        file.write(f"engine {event}\n")


def receive(number: int, frame: object) -> None:
    record("SIGTERM")
    record("ended")
    os._exit(0)


def end_with_supervisor() -> None:
    os.read(options.supervisor_fd, 1)
    record("orphaned")
    os._exit(1)


signal.signal(signal.SIGTERM, receive)
threading.Thread(target=end_with_supervisor, daemon=True).start()
record(f"started {os.getpid()}")
if options.exit_code is not None:
    sys.stderr.write("the last line\n")
    if options.exit_code == 4:
        options.termination_message_path.write_text(json.dumps({"reason": "ModelLoadFailed", "phase": "loading", "lastError": "no tensor lm_head"}))
    sys.exit(options.exit_code)
while True:
    signal.pause()
