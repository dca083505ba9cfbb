import logging
import sys
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from stoker_engine.config import ModelConfig
from stoker_engine.errors import ConfigError
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.api_keys import ApiKeys
from stoker_gateway.api.app import ApiApp
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.edge import make_edge
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.observe import ObserveMiddleware
from stoker_gateway.api.state import ApiState, make_state
from stoker_gateway.http.drain import Drain


@pytest.fixture
async def state(tokenizer: Tokenizer) -> ApiState:
    config = ApiConfig(model=ModelConfig(uri="file:///models/m"), cors_allow_origins=("*",))
    metrics = Metrics("m")
    engine = AsyncLLM(ClientConfig(socket_dir="/nowhere"), tokenizer, [metrics])
    return make_state(config, engine, tokenizer, metrics, Drain(1.0))


async def test_a_bug_is_told_to_the_log_and_not_to_the_client(state: ApiState, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_args: object) -> bytes:
        raise RuntimeError("/srv/secret.py: line 7")

    monkeypatch.setattr(Metrics, "render", fail)
    app = make_edge(state.config).wrap(ApiApp(state, None), state.metrics, state.drain)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with caplog.at_level(logging.DEBUG):
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            response = await client.get("/metrics", headers={"X-Request-Id": "mine", "Origin": "https://b.example"})
    assert response.status_code == 500 and response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text and "Traceback" not in response.text
    assert (response.headers["x-request-id"], response.headers["access-control-allow-origin"]) == ("mine", "*")
    assert "GET /metrics 500 requestId=mine" in caplog.text


def test_traces_without_opentelemetry_are_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stoker_gateway.api.tracing", None)
    with pytest.raises(ConfigError, match=r"--otlp-endpoint: .*install stoker\[otel\]"):
        make_edge(ApiConfig(model=ModelConfig(uri="file:///models/m"), otlp_endpoint="http://a:4318"))


@pytest.mark.parametrize("given", [[], [(b"connection", b"close")]])
async def test_an_answer_that_begins_while_the_api_drains_ends_its_connection(given: list[tuple[bytes, bytes]]) -> None:
    drain, sent = Drain(1.0), list[Message]()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        drain.request_stop()  # between the request's beginning and the answer's
        await send({"type": "http.response.start", "status": 200, "headers": given})

    async def keep(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions", "headers": []}
    await ObserveMiddleware(app, drain, ())(scope, keep, keep)  # type: ignore[arg-type]
    assert [value for name, value in sent[0]["headers"] if name == b"connection"] == [b"close"]


async def test_a_stranger_is_told_so_also_while_the_api_drains(state: ApiState, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("mine")
    state.drain.request_stop()
    app = make_edge(state.config).wrap(ApiApp(state, ApiKeys(keys)), state.metrics, state.drain)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        answers = [await client.post("/v1/completions", headers={"Authorization": f"Bearer {key}"}) for key in ("theirs", "mine")]
    assert [(answer.status_code, answer.headers["connection"]) for answer in answers] == [(401, "close"), (503, "close")]
