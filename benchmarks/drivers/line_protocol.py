"""How a driver is asked: one JSON object per line on its standard input, one per line back on what was its standard output when it started."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(make_handler: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Makes the handler, says that it is ready, and answers until the input ends. All that libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    handle = make_handler()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(handle(json.loads(line))), file=answers, flush=True)
