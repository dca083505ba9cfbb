import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from stoker_engine.config import LifecycleConfig
from stoker_engine.testing import Script

MESSAGES = [{"role": "user", "content": "x"}]
Wait = Callable[[Callable[[], bool], str], None]


@pytest.mark.case("C078", "C065")
def test_an_api_without_an_engine_lives_and_refuses_work(start_api: Any) -> None:
    api = start_api(None)
    assert [api.status(path) for path in ("/livez", "/readyz", "/health", "/startupz", "/v1/models")] == [200, 503, 503, 503, 503]
    assert api.client.get("/startupz").json()["phase"] == "waiting_for_engine"
    response = api.post("/v1/chat/completions", {"messages": MESSAGES})
    assert response.status_code == 503 and response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "engine_not_ready"


@pytest.mark.case("C078")
def test_startupz_tells_the_phase_while_the_model_loads(start_api: Any, wait_for: Wait) -> None:
    api = start_api(None)
    api.start_engine(Script(load_seconds=60))
    wait_for(lambda: api.client.get("/startupz").json()["progress"] > 0, "progress is reported")
    report = api.client.get("/startupz").json()
    assert report["phase"] == "loading" and 0 < report["progress"] < 1 and report["since"].startswith("20")
    assert [api.status(path) for path in ("/startupz", "/readyz", "/livez")] == [503, 503, 200]


@pytest.mark.case("C078")
def test_the_first_request_after_ready_succeeds(start_api: Any) -> None:
    api = start_api(Script())
    assert api.chat(max_tokens=1)["usage"]["completion_tokens"] == 1
    assert [api.status(path) for path in ("/startupz", "/readyz", "/health", "/v1/models")] == [200] * 4
    spent = api.client.get("/startupz").json()["startSeconds"]
    assert {"starting", "loading"} <= set(spent) and all(0 <= seconds < 60 for seconds in spent.values()) and "ready" not in spent


def test_startupz_has_the_words_of_an_engine_that_failed(start_api: Any, wait_for: Wait) -> None:
    api = start_api(None)
    api.start_engine(Script(load_error="tensor blk.0 is truncated"))
    wait_for(lambda: "tensor blk.0 is truncated" in api.client.get("/startupz").text, "the failure is told")
    assert api.status("/startupz") == 503


@pytest.mark.fault("G11", "G12")
@pytest.mark.case("C065")
def test_requests_of_a_killed_engine_end_and_the_next_engine_serves(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02))
    body = {"messages": MESSAGES, "max_tokens": 5000, "ignore_eos": True, "stream": True, "model": "m"}
    with api.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        api.engine.process.kill()
        data = [line.removeprefix("data: ") for line in lines if line]
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    assert '"code":"engine_dead"' in data[-2]
    assert [api.status(path) for path in ("/readyz", "/health", "/livez")] == [503, 503, 200]
    assert api.post("/v1/chat/completions", {"messages": MESSAGES}).status_code == 503
    assert api.status("/startupz") == 503 and api.client.get("/startupz").json()["phase"] == "failed"
    assert api.metric("stoker_num_requests_running") == 0
    api.start_engine(Script())
    api.wait_until_ready()
    assert api.chat(max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.case("C065")
def test_a_request_that_is_not_streamed_is_told_that_its_engine_died(start_api: Any) -> None:
    api = start_api(Script(crash_at_step=3))
    response = api.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 50, "ignore_eos": True})
    assert response.status_code == 503 and response.json()["error"]["code"] == "engine_dead", response.text
    assert response.headers["retry-after"] == "1"


@pytest.mark.fault("B7")
@pytest.mark.case("C067")
def test_a_stopped_engine_is_not_healthy_until_it_goes_on(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script())
    api.engine.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: api.status("/health") == 503, "/health is 503")
    assert "not been heard of" in api.client.get("/readyz").json()["reason"]
    assert api.status("/livez") == 200
    api.engine.process.send_signal(signal.SIGCONT)
    api.wait_until_ready()


@pytest.mark.fault("B7")
@pytest.mark.case("C067")
def test_a_step_that_takes_too_long_counts_as_hung(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(hang_at_step=1), lifecycle=LifecycleConfig(engine_hang_timeout="1s"))
    body = {"model": "m", "messages": MESSAGES, "stream": True}
    with pytest.raises(httpx.ReadTimeout), api.client.stream("POST", "/v1/chat/completions", json=body, timeout=0.2):
        raise AssertionError("a hung engine answered")
    wait_for(lambda: api.status("/health") == 503, "/health is 503")
    assert "has been running for" in api.client.get("/readyz").json()["reason"]


def test_a_request_that_fails_in_the_engine_fails_alone(start_api: Any) -> None:
    api = start_api(Script(failing_token_id=77))
    response = api.post("/v1/completions", {"prompt": [77]})
    assert response.status_code == 500 and response.json()["error"]["type"] == "server_error"
    assert api.complete([78], max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.fault("B8")
@pytest.mark.case("C068")
def test_probes_are_answered_while_the_engine_is_busy_with_a_long_step(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=1.5))
    body = {"model": "m", "messages": MESSAGES, "stream": True, "max_tokens": 2}
    with httpx.stream("POST", f"{api.url}/v1/chat/completions", json=body, timeout=30) as response:
        assert [api.status(path) for path in ("/livez", "/readyz", "/health", "/metrics")] == [200] * 4
        assert response.read().endswith(b"data: [DONE]\n\n")
