"""Stands in for stoker-api and stoker-gateway: says its phase, answers chat, and writes down what happens to it.

Arguments: --component api|gateway --port N --events FILE --behavior drain|stubborn|deaf --phase PHASE --supervisor-fd N.
`drain` ends on SIGTERM, `stubborn` on the second one, `deaf` never.
"""

import argparse
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--component", default="api")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--events", type=Path, required=True)
parser.add_argument("--behavior", choices=["drain", "stubborn", "deaf"], default="drain")
parser.add_argument("--phase", default="ready")
parser.add_argument("--supervisor-fd", type=int, required=True)
options = parser.parse_args()
METRICS = "stoker_num_requests_running 2\nstoker_num_requests_waiting 1\nstoker_generation_tokens_total 7\nstoker_kv_cache_usage_ratio 0.5\n"
num_signals = 0


def record(event: str) -> None:
    with options.events.open("a") as file:
        file.write(f"{options.component} {event}\n")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply(json.dumps({"phase": options.phase, "progress": 1.0, "seconds": 0.0, "message": ""}) if self.path == "/startupz" else METRICS)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        record(f"asked {body['model']} at temperature {body['temperature']}")
        self.reply(json.dumps({"choices": [{"message": {"role": "assistant", "content": "Paris."}}]}))

    def reply(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not what is looked at."""


def receive(number: int, frame: object) -> None:
    global num_signals
    num_signals += 1
    record(f"SIGTERM {num_signals}")
    if options.behavior == "drain" or (options.behavior == "stubborn" and num_signals == 2):
        record("ended")
        os._exit(0)


def end_with_supervisor() -> None:
    os.read(options.supervisor_fd, 1)
    record("orphaned")
    os._exit(1)


signal.signal(signal.SIGTERM, receive)
threading.Thread(target=end_with_supervisor, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
record(f"started {os.getpid()}")
sys.stderr.write("listening\n")
server.serve_forever()
