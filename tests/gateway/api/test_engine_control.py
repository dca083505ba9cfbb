from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from stoker_engine.testing import Script

PROMPT = [7] * 40


@pytest.fixture(scope="module")
def controlled(make_api: Callable[..., Any]) -> Iterator[Any]:
    """A replica that takes control, with an engine whose steps last 10 ms. Tests leave it awake and resumed."""
    with make_api(Script(step_seconds=0.01), enable_engine_control=True) as api:
        yield api


@pytest.fixture(autouse=True)
def awake(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "controlled" in request.fixturenames:
        api = request.getfixturevalue("controlled")
        assert api.client.post("/wake_up").status_code == 200
        assert api.client.post("/resume").status_code == 200


@contextmanager
def running_request(api: Any, max_tokens: int, wait_for: Callable[..., None]) -> Iterator["Future[httpx.Response]"]:
    """A request that the engine has begun."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(complete, api, max_tokens=max_tokens, ignore_eos=True)
        wait_for(lambda: api.metric("stoker_num_requests_running") == 1, "the request runs")
        yield future


def complete(api: Any, **fields: Any) -> httpx.Response:
    with httpx.Client(base_url=api.url, timeout=30) as client:
        body = {"model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 3, **fields}
        return client.post("/v1/completions", json=body)


def error_code(response: httpx.Response) -> str:
    code: str = response.json()["error"]["code"]
    return code


@pytest.mark.case("C063")
def test_while_it_sleeps_requests_are_refused_and_readiness_is_false(controlled: Any) -> None:
    expected = complete(controlled).json()["choices"][0]["text"]
    for _ in range(2):
        assert controlled.client.post("/sleep?level=1").status_code == 200
    assert controlled.client.get("/is_sleeping").json() == {"is_sleeping": True}
    assert [controlled.status(path) for path in ("/livez", "/readyz", "/health", "/startupz")] == [200, 503, 503, 200]
    assert "the engine is sleeping" in controlled.client.get("/readyz").json()["reason"]
    refused = complete(controlled)
    assert (refused.status_code, error_code(refused), refused.headers["Retry-After"]) == (503, "engine_not_ready", "1")
    assert controlled.client.post("/wake_up?tags=weights").status_code == 200
    assert complete(controlled).status_code == 503
    for _ in range(2):
        assert controlled.client.post("/wake_up?tags=weights&tags=kv_cache").status_code == 200
    assert controlled.client.get("/is_sleeping").json() == {"is_sleeping": False}
    assert controlled.status("/readyz") == 200
    assert complete(controlled).json()["choices"][0]["text"] == expected


@pytest.mark.case("C063", "C064")
@pytest.mark.parametrize("level", [1, 2])
def test_after_a_sleep_the_first_prompt_is_computed_anew(controlled: Any, level: int) -> None:
    first = complete(controlled).json()
    assert controlled.client.post("/sleep", params={"level": level}).status_code == 200
    assert controlled.client.post("/wake_up").status_code == 200
    second, third = complete(controlled).json(), complete(controlled).json()
    assert first["choices"] == second["choices"] == third["choices"]
    assert [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in (second, third)] == [0, 32]


@pytest.mark.case("C063")
def test_a_running_request_is_aborted_before_the_engine_sleeps(controlled: Any, wait_for: Callable[..., None]) -> None:
    with running_request(controlled, 2000, wait_for) as request:
        assert controlled.client.post("/sleep").status_code == 200
        assert request.result().json()["choices"][0]["finish_reason"] == "abort"


@pytest.mark.property("P33")
def test_a_kept_request_goes_on_when_the_engine_wakes(controlled: Any, wait_for: Callable[..., None]) -> None:
    expected = complete(controlled, max_tokens=60, ignore_eos=True).json()["choices"][0]
    with running_request(controlled, 60, wait_for) as request:
        assert controlled.client.post("/sleep?level=2&mode=keep").status_code == 200
        assert not request.done()
        assert controlled.client.post("/wake_up").status_code == 200
        assert request.result().json()["choices"][0] == expected


@pytest.mark.property("P33")
def test_requests_to_a_paused_engine_wait_for_its_resumption(controlled: Any) -> None:
    assert controlled.client.post("/pause?mode=wait&clear_cache=false").status_code == 200
    assert controlled.client.get("/is_paused").json() == {"is_paused": True}
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(complete, controlled)
        assert controlled.client.get("/is_paused").json() == {"is_paused": True}
        assert controlled.client.post("/resume").status_code == 200
        assert request.result().status_code == 200
    assert controlled.client.get("/is_paused").json() == {"is_paused": False}


@pytest.mark.fault("G13")
def test_a_refused_reset_of_the_prefix_cache_is_a_conflict(controlled: Any, wait_for: Callable[..., None]) -> None:
    with running_request(controlled, 100, wait_for) as request:
        refused = controlled.client.post("/reset_prefix_cache")
        assert (refused.status_code, error_code(refused)) == (409, "prefix_cache_in_use")
        assert controlled.client.post("/reset_prefix_cache?reset_running_requests=true").status_code == 200
        assert request.result().json()["usage"]["completion_tokens"] == 100
    assert controlled.client.post("/reset_prefix_cache").status_code == 200


@pytest.mark.fault("G13")
def test_what_the_engine_refuses_is_a_conflict(controlled: Any) -> None:
    assert controlled.client.post("/sleep?level=0").status_code == 200
    for path, words in (("/resume", "wake_up resumes it"), ("/start_profile", "without --profile-dir"), ("/stop_profile", "no profile")):
        response = controlled.client.post(path)
        assert (response.status_code, error_code(response)) == (409, "engine_refused")
        assert words in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/sleep?level=3", "/sleep?level=one", "/sleep?mode=stop", "/sleep?tags=weights", "/wake_up?tags=disk", "/pause?clear_cache=perhaps", "/pause?x=1"]
)
def test_a_wrong_query_is_refused_and_changes_nothing(controlled: Any, path: str) -> None:
    response = controlled.client.post(path)
    assert (response.status_code, error_code(response)) == (400, "invalid_query")
    assert controlled.status("/readyz") == 200


def test_without_the_setting_there_are_no_such_paths(api: Any) -> None:
    for path in ("/sleep", "/wake_up", "/pause", "/resume", "/reset_prefix_cache", "/start_profile", "/stop_profile"):
        assert api.client.post(path).status_code == 404
    for path in ("/is_sleeping", "/is_paused"):
        assert api.client.get(path).status_code == 404


def test_control_of_an_engine_that_is_not_there_is_unavailable(make_api: Callable[..., Any]) -> None:
    with make_api(None, enable_engine_control=True) as api:
        assert [api.client.post(path).status_code for path in ("/sleep", "/pause", "/reset_prefix_cache")] == [503] * 3
