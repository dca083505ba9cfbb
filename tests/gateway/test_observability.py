import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MALFORMED = {
    "cut": b'{"model":"m",',
    "no-text": b'{"messages":[{"role":"user","content":"\xff"}]}',
    "empty": b"",
    "list": b"[]",
    "deep": b"[" * 10000,
    "bare": b'{"messages":[]}',
}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "temperature": 0.5, "ignore_eos": True}


@dataclass
class Seen:
    """What an api has told by the time it has ended."""

    lines: list[dict[str, Any]]
    spans: dict[str, Any]
    resource: dict[str, Any]
    answers: dict[str, httpx.Response]
    began: float
    ended: float
    attributes_of: Callable[[Any], dict[str, Any]]

    def line(self, name: str) -> dict[str, Any]:
        (line,) = [line for line in self.lines if line.get("requestId") == name]
        return line


def ask(client: httpx.Client) -> dict[str, httpx.Response]:
    """Requests of every kind, by the ids that they bring."""

    def post(name: str, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
        return client.post(path, json=body, headers={"X-Request-Id": name, **headers})

    parent = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    answers = {
        "whole": post("whole", CHAT, **parent),
        "streamed": post("streamed", {**CHAT, "stream": True, "n": 2}),
        "batch": post("batch", {"model": "m", "prompt": ["a b", "c"], "max_tokens": 3, "ignore_eos": True}, "/v1/completions"),
        "wrong": post("wrong", {**CHAT, "temperature": 9}),
        **{name: client.post("/v1/chat/completions", content=body, headers={"X-Request-Id": name}) for name, body in MALFORMED.items()},
        "nowhere": post("nowhere", {}, "/v1/no%0Awhere" + "x" * 300),
        "models": client.get("/v1/models", headers={"X-Request-Id": "models"}),
        "probe": client.get("/livez", headers={"X-Request-Id": "probe"}),
    }
    with client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True, "max_tokens": 4000}, headers={"X-Request-Id": "left"}) as response:
        next(response.iter_bytes())
    return answers


def run(api: subprocess.Popen[bytes], port: int, socket_dir: str, wait_for: Callable[..., None]) -> tuple[dict[str, httpx.Response], float]:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.005)), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

        def is_ready() -> bool:
            try:
                return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(is_ready, "the api is ready")
        began = time.time()
        answers = ask(client)
        api.send_signal(signal.SIGTERM)
        assert api.wait(timeout=60) == 0
    return answers, began


@pytest.fixture(scope="module")
def seen(make_spawn_api: Callable[..., Any], collector: Any, free_port: Callable[[], int], wait_for: Callable[..., None]) -> Seen:
    with make_spawn_api() as (spawn, directory):
        log, port = Path(directory, "api.log"), free_port()
        with log.open("wb") as file:
            settings = {"log_level": "info", "log_format": "json", "otlp_endpoint": collector.url, "port": port}
            answers, began = run(spawn(directory, stderr=file.fileno(), **settings), port, directory, wait_for)
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    spans = {collector.attributes(span.attributes)["stoker.request.id"]: span for span in collector.spans()}
    return Seen(
        lines, spans, collector.attributes(collector.requests[0].resource_spans[0].resource.attributes), answers, began, time.time(), collector.attributes
    )


@pytest.mark.case("C016")
def test_nothing_that_a_client_sends_is_an_error_of_the_servers(seen: Seen) -> None:
    assert {seen.answers[name].status_code for name in MALFORMED} == {400}
    assert {line["level"] for line in seen.lines} == {"info"}


def test_each_request_has_one_line_with_tokens_and_times(seen: Seen) -> None:
    line = seen.line("whole")
    usage = seen.answers["whole"].json()["usage"]
    assert (line["method"], line["path"], line["status"], line["model"]) == ("POST", "/v1/chat/completions", 200, "m")
    assert (line["promptTokens"], line["outputTokens"], line["finishReasons"]) == (usage["prompt_tokens"], 5, "length")
    assert 0 < line["timeToFirstToken"] < line["seconds"] < 10
    assert line["message"].startswith("POST /v1/chat/completions 200 requestId=whole ")


def test_choices_and_prompts_are_summed_as_in_the_usage(seen: Seen) -> None:
    prompt_tokens = seen.answers["batch"].json()["usage"]["prompt_tokens"]
    assert [(seen.line(name)["promptTokens"], seen.line(name)["outputTokens"]) for name in ("streamed", "batch")] == [
        (seen.line("whole")["promptTokens"], 10),
        (prompt_tokens, 6),
    ]


def test_refusals_and_clients_that_left_are_logged_too(seen: Seen) -> None:
    assert [seen.line(name)["status"] for name in ("wrong", "nowhere", "models", "left")] == [400, 404, 200, 200]
    assert seen.line("left")["finishReasons"] == "abort" and 0 < seen.line("left")["outputTokens"] < 4000
    assert "%0A" in seen.line("nowhere")["path"] and len(seen.line("nowhere")["path"]) == 200


def test_probes_are_not_logged_at_this_level(seen: Seen) -> None:
    assert "probe" not in [line.get("requestId") for line in seen.lines]


def test_each_piece_of_work_has_one_span(seen: Seen, collector: Any) -> None:
    assert sorted(seen.spans) == sorted(["batch", "left", "nowhere", "streamed", "whole", "wrong", *MALFORMED]) and len(collector.spans()) == len(seen.spans)
    assert collector.paths == {"/v1/traces"} and seen.resource["service.name"] == "stoker-api"


def test_a_span_is_the_child_of_the_clients(seen: Seen) -> None:
    assert (seen.spans["whole"].trace_id.hex(), seen.spans["whole"].parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert seen.spans["batch"].parent_span_id == b"" and seen.spans["batch"].trace_id.hex() != TRACE_ID


def test_a_span_has_the_names_that_the_conventions_have(seen: Seen) -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    span = seen.spans["whole"]
    attributes = seen.attributes_of(span.attributes)
    assert {name for name in attributes if name.startswith("gen_ai.") and not name.startswith("gen_ai.latency.")} <= known
    usage = seen.answers["whole"].json()["usage"]
    assert span.name == "chat m" and span.kind == 2
    assert (
        attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.request.max_tokens": 5,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.id": "chatcmpl-whole",
            "gen_ai.usage.input_tokens": usage["prompt_tokens"],
            "gen_ai.usage.output_tokens": 5,
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
        }.items()
    )
    assert attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert "hi" not in map(str, attributes.values())


def test_the_engines_times_are_events_within_the_span(seen: Seen) -> None:
    span = seen.spans["whole"]
    queue, prefill, decode = span.events
    assert [event.name for event in span.events] == ["queue", "prefill", "decode"]
    assert span.start_time_unix_nano <= queue.time_unix_nano <= prefill.time_unix_nano <= decode.time_unix_nano <= span.end_time_unix_nano
    assert seen.began * 1e9 <= span.start_time_unix_nano and span.end_time_unix_nano <= seen.ended * 1e9
    assert seen.attributes_of(decode.attributes)["seconds"] >= 4 * 0.005
    assert len(seen.spans["streamed"].events) == 6


def test_a_refused_request_is_an_error_without_a_model(seen: Seen) -> None:
    wrong = seen.attributes_of(seen.spans["wrong"].attributes)
    assert (seen.spans["wrong"].name, wrong["error.type"], wrong["http.response.status_code"]) == ("POST /v1/chat/completions", "400", 400)
    assert seen.spans["nowhere"].name == "POST"


@pytest.mark.stress
def test_a_collector_that_never_answers_costs_nobody_anything(start_api: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = start_api(Script(), otlp_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        for _ in range(200):
            api.chat(max_tokens=2)
        assert api.stop() == 0
