import logging
import sys

import httpx
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.errors import ConfigError
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.app import ApiApp
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.edge import make_edge
from stoker_gateway.api.metrics import Metrics
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
    app = make_edge(state.config).wrap(ApiApp(state, None), state.metrics)
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
