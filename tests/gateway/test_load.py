import signal
from collections.abc import Callable
from typing import Any

import httpx

from stoker_engine.testing import Script

Wait = Callable[[Callable[[], bool], str], None]
BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True, "max_tokens": 5000}


def test_load_counts_what_is_in_flight_and_says_when_the_api_drains(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02))
    idle = {"inFlight": 0, "running": 0, "waiting": 0, "draining": False, "kvCacheUsage": 0.0, "generationTokens": 0, "server_load": 0}
    assert api.client.get("/load").json() == idle
    with httpx.stream("POST", f"{api.url}/v1/chat/completions", json=BODY, timeout=30) as response:
        lines = response.iter_lines()
        next(lines)
        wait_for(lambda: api.client.get("/load").json()["running"] == 1, "the engine's count has come")
        wait_for(lambda: api.client.get("/load").json()["generationTokens"] > 1, "tokens are counted as they come")
        busy = idle | {"inFlight": 1, "running": 1, "server_load": 1}
        assert api.client.get("/load").json() | {"kvCacheUsage": 0.0, "generationTokens": 0} == busy
        api.process.send_signal(signal.SIGTERM)
        wait_for(lambda: api.client.get("/load").json()["draining"], "it drains")
    assert api.process.wait(timeout=30) == 0


def test_load_of_an_api_without_an_engine_is_nothing(start_api: Any) -> None:
    assert start_api(None).client.get("/load").json()["server_load"] == 0
