"""Responses that are made in the background, on an engine that takes its time, and what becomes of answers when it dies."""

import json
import re
from typing import Any

import pytest

from stoker_engine.testing import Script

SLOW: dict[str, Any] = {"tokens_per_second": 100, "max_model_len": 1024}


@pytest.fixture(scope="module")
def slow_api(start_shared_api: Any) -> Any:
    return start_shared_api(**SLOW)


def begin(api: Any, **fields: Any) -> dict[str, Any]:
    response = api.post("/v1/responses", {"input": "hi", "background": True, "ignore_eos": True, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def fetch(api: Any, answer: dict[str, Any]) -> dict[str, Any]:
    return api.client.get(f"/v1/responses/{answer['id']}").json()


def test_a_response_is_made_while_nobody_waits(slow_api: Any, wait_for: Any) -> None:
    answer = begin(slow_api, max_output_tokens=20)
    assert answer["status"] == "queued" and answer["output"] == [] and answer["usage"] is None
    wait_for(lambda: fetch(slow_api, answer)["status"] == "in_progress", "it is in progress", 10)
    wait_for(lambda: fetch(slow_api, answer)["status"] == "incomplete", "it is over")
    done = fetch(slow_api, answer)
    assert done["usage"]["output_tokens"] == 20 and done["output"][0]["content"][0]["text"]


def test_a_cancelled_response_keeps_what_there_was_and_frees_the_engine(slow_api: Any, wait_for: Any) -> None:
    answer = begin(slow_api)
    wait_for(lambda: fetch(slow_api, answer)["status"] == "in_progress", "it is in progress", 10)
    url = f"/v1/responses/{answer['id']}/cancel"
    cancelled = slow_api.client.post(url).json()
    assert cancelled["status"] == "cancelled" and cancelled["output"][0]["status"] == "incomplete"
    assert slow_api.client.post(url).json() == cancelled == fetch(slow_api, answer)
    wait_for(lambda: slow_api.client.get("/load").json()["running"] == 0, "nothing runs")


def test_a_deleted_response_frees_the_engine(slow_api: Any, wait_for: Any) -> None:
    answer = begin(slow_api)
    assert slow_api.client.delete(f"/v1/responses/{answer['id']}").json()["deleted"] is True
    assert slow_api.status(f"/v1/responses/{answer['id']}") == 404
    wait_for(lambda: slow_api.client.get("/load").json()["running"] == 0, "nothing runs")


def test_only_what_is_made_in_the_background_can_be_cancelled_or_streamed_again(slow_api: Any) -> None:
    answer = slow_api.post("/v1/responses", {"input": "hi", "max_output_tokens": 1}).json()
    for response in (slow_api.client.post(f"/v1/responses/{answer['id']}/cancel"), slow_api.client.get(f"/v1/responses/{answer['id']}?stream=true")):
        assert response.status_code == 400 and response.json()["error"]["message"].startswith("Only a response that was created with background")
    assert slow_api.client.get(f"/v1/responses/{answer['id']}?starting_after=3").status_code == 400


def test_a_stream_that_was_left_can_be_taken_up_again(slow_api: Any) -> None:
    body = {"model": "m", "input": "hi", "background": True, "stream": True, "max_output_tokens": 30, "ignore_eos": True}
    lines = []
    with slow_api.client.stream("POST", "/v1/responses", json=body) as response:
        for line in response.iter_lines():
            lines += [json.loads(line.removeprefix("data: "))] if line.startswith("data: ") else []
            if len(lines) == 9:
                break
    url = f"/v1/responses/{lines[0]['response']['id']}"
    assert [event["type"] for event in lines[:3]] == ["response.created", "response.queued", "response.in_progress"]
    rest = [json.loads(data) for data in re.findall("^data: (.*)$", slow_api.client.get(f"{url}?stream=true&starting_after=8").text, re.MULTILINE)]
    events = lines + rest
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == rest[-4]["text"]
    assert rest[-1]["type"] == "response.incomplete" and rest[-1]["response"] == slow_api.client.get(url).json()
    assert len(slow_api.client.get(f"{url}?stream=true").text.split("\n\n")) == len(events) + 1


def test_an_unfinished_response_has_no_next_one(slow_api: Any) -> None:
    answer = begin(slow_api)
    response = slow_api.post("/v1/responses", {"input": "hi", "previous_response_id": answer["id"]})
    assert response.status_code == 400 and response.json()["error"]["param"] == "previous_response_id"
    slow_api.client.post(f"/v1/responses/{answer['id']}/cancel")


def test_an_engine_that_dies_fails_what_it_was_making(slow_api: Any, wait_for: Any) -> None:
    api = slow_api
    answers = [begin(api), begin(api, stream=False)]
    wait_for(lambda: all(fetch(api, answer)["status"] == "in_progress" for answer in answers), "both are in progress", 10)
    message = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 900, "stream": True}
    with api.client.stream("POST", "/v1/messages", json=message) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: message_start"
        api.engine.process.kill()
        *_, name, data, _ = lines
    assert name == "event: error" and json.loads(data.removeprefix("data: "))["error"]["type"] == "overloaded_error"
    wait_for(lambda: all(fetch(api, answer)["status"] == "failed" for answer in answers), "both have failed", 10)
    assert {fetch(api, answer)["error"]["code"] for answer in answers} == {"server_error"}
    assert api.post("/v1/messages", message).json()["error"]["type"] == "overloaded_error"
    api.start_engine(Script(**SLOW))
    api.wait_until_ready()


@pytest.mark.stress
def test_a_process_that_drains_waits_for_the_background(start_api: Any, wait_for: Any) -> None:
    api = start_api(Script(tokens_per_second=50, max_model_len=1024))
    answer = begin(api, max_output_tokens=25)
    wait_for(lambda: fetch(api, answer)["status"] == "in_progress", "it is in progress", 10)
    assert api.stop() == 0
    assert api.termination["inFlightAtStart"] == api.termination["completed"] == 1 and "aborted" not in api.termination
