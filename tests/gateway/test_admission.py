from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from stoker_engine.testing import Script

Wait = Callable[[Callable[[], bool], str], None]


@contextmanager
def one_running_and_others_waiting(api: Any, wait_for: Wait, num_waiting: int, prompt: list[int]) -> Iterator[None]:
    """Requests for the one seat there is: the first has its first token."""
    body = {"model": "m", "prompt": prompt, "max_tokens": 8, "ignore_eos": True}
    with ThreadPoolExecutor(1 + num_waiting) as pool:
        posts = [pool.submit(httpx.post, f"{api.url}/v1/completions", json=body, timeout=60)]
        wait_for(lambda: api.metric("stoker_generation_tokens_total") > 0, "the first has a token")
        posts += [pool.submit(httpx.post, f"{api.url}/v1/completions", json={**body, "max_tokens": 1}, timeout=60) for _ in range(num_waiting)]
        wait_for(lambda: api.metric("stoker_num_requests_waiting") == num_waiting, "the others wait")
        yield
        assert [post.result().status_code for post in posts] == [200] * len(posts)


@pytest.mark.fault("F1")
@pytest.mark.fault("F1")
def test_a_request_beyond_the_queue_is_told_to_come_again_before_anything_is_sent(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.3), engine={"max_num_seqs": 1}, max_queued_requests=3)
    with one_running_and_others_waiting(api, wait_for, 2, [1, 2, 3]):
        for fields in ({"n": 2, "temperature": 1.0}, {"prompt": [[1], [2]]}):
            refused = api.post("/v1/completions", {"prompt": [5], "max_tokens": 1, **fields})
            assert refused.status_code == 429, refused.text
        assert refused.headers["retry-after"] == "1"
        assert (refused.json()["error"]["code"], refused.json()["error"]["type"]) == ("queue_full", "rate_limit_error")
        assert api.complete([5], max_tokens=1)["usage"]["completion_tokens"] == 1
    assert api.metric('stoker_requests_refused_total{model_name="m",reason="queue_full"}') == 2
    assert api.metric("stoker_requests_total") == 4


def test_a_response_in_the_background_beyond_the_queue_is_refused_at_once(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.3), engine={"max_num_seqs": 1}, max_queued_requests=1)
    with one_running_and_others_waiting(api, wait_for, 1, [1, 2, 3]):
        for fields in ({}, {"stream": True}):
            refused = api.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "background": True, **fields})
            assert (refused.status_code, refused.headers.get("retry-after")) == (429, "1"), refused.text


@pytest.mark.fault("F1")
def test_prompt_tokens_beyond_the_queue_are_refused(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.3), engine={"max_num_seqs": 1}, max_queued_prefill_tokens=300)
    with one_running_and_others_waiting(api, wait_for, 1, [7] * 200):
        refused = api.post("/v1/completions", {"prompt": [5] * 150, "max_tokens": 1})
        assert refused.status_code == 429 and "200 prompt tokens wait to be computed" in refused.json()["error"]["message"]
        assert api.complete([5], max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.fault("C10")
def test_a_batch_that_could_never_wait_is_a_bad_request(start_api: Any) -> None:
    api = start_api(Script(), max_queued_requests=3)
    refused = api.post("/v1/completions", {"prompt": [[1], [2], [3], [4]]})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt"
    assert len(api.complete([[1], [2], [3]], max_tokens=1)["choices"]) == 3


@pytest.mark.case("C065")
def test_refused_requests_are_counted_by_their_reason(start_api: Any) -> None:
    api = start_api(None)
    assert api.post("/v1/completions", {"prompt": "x"}).status_code == 503
    assert api.post("/v1/completions", {"prompt": "x", "temperature": 9}).status_code == 400
    reasons = {reason: api.metric(f'stoker_requests_refused_total{{model_name="m",reason="{reason}"}}') for reason in ("invalid", "not_ready", "queue_full")}
    assert reasons == {"invalid": 1, "not_ready": 1, "queue_full": 0}


@pytest.mark.property("P68")
@pytest.mark.property("P62", "P68")
def test_every_request_is_in_flight_or_counted_under_the_reason_of_its_end(start_api: Any, wait_for: Wait) -> None:
    api = start_api(Script(step_seconds=0.02, failing_token_id=77))
    api.complete([1], max_tokens=3, ignore_eos=True)
    api.complete([1], max_tokens=2, ignore_eos=True, n=3, temperature=1.0)
    assert api.post("/v1/completions", {"prompt": [77]}).status_code == 500
    with pytest.raises(httpx.ReadTimeout):
        api.post("/v1/completions", {"prompt": [2], "max_tokens": 5000, "ignore_eos": True}, timeout=0.3)

    def by_reason() -> dict[str, float]:
        return {reason: api.metric(f'stoker_request_success_total{{finish_reason="{reason}",model_name="m"}}') for reason in ("length", "error", "abort")}

    wait_for(lambda: by_reason()["abort"] == 1, "the abort is counted")
    assert by_reason() == {"length": 4, "error": 1, "abort": 1}
    assert api.metric("stoker_requests_total") == 6
    stream = {"model": "m", "prompt": [3], "max_tokens": 5000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{api.url}/v1/completions", json=stream, timeout=30) as response:
        lines = response.iter_lines()
        next(lines)
        api.engine.process.kill()
        assert list(lines)[-2] == "data: [DONE]"
    wait_for(lambda: by_reason()["error"] == 2, "the death is counted")
    assert api.metric("stoker_requests_total") == sum(by_reason().values()) == 7
