import base64
import hashlib
import re
from typing import Any

import httpx
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.app import ApiApp
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.edge import make_edge
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.playground import make_page
from stoker_gateway.api.state import make_state
from stoker_gateway.http.drain import Drain


@pytest.fixture(scope="module")
def page(api: Any) -> httpx.Response:
    response: httpx.Response = api.client.get("/")
    assert response.status_code == 200
    return response


def policy_of(page: httpx.Response) -> dict[str, str]:
    return dict(directive.split(" ", 1) for directive in page.headers["content-security-policy"].split("; "))


def test_the_page_is_html_that_names_the_model(page: httpx.Response) -> None:
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert '<meta name="stoker-model" content="m">' in page.text and '<meta name="stoker-asks-for-key" content="false">' in page.text


@pytest.mark.parametrize("element", ["script", "style"])
def test_the_page_may_run_its_own_script_and_style_and_no_other(page: httpx.Response, element: str) -> None:
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert policy_of(page)[f"{element}-src"] == f"'sha256-{digest}'"


def test_the_page_may_ask_nobody_but_its_server(page: httpx.Response) -> None:
    policy = policy_of(page)
    assert (policy["default-src"], policy["connect-src"], policy["img-src"]) == ("'none'", "'self'", "data:")
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert (page.headers["x-content-type-options"], page.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert {address for address in re.findall(r"""https?://[^\s'"]+""", page.text)} == {"http://www.w3.org/2000/svg"}


def test_the_page_is_asked_for_again_each_time_and_sent_when_it_has_changed(api: Any, page: httpx.Response) -> None:
    assert page.headers["cache-control"] == "no-cache"
    for known in (page.headers["etag"], f"W/{page.headers['etag']}", f'"other", {page.headers["etag"]}'):
        kept = api.client.get("/", headers={"If-None-Match": known})
        assert (kept.status_code, kept.content, kept.headers["etag"]) == (304, b"", page.headers["etag"])
    assert api.client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_model_may_have_any_name() -> None:
    page = make_page('"><script>alert(1)</script>', asks_for_key=True).body.decode()
    assert "<script>alert" not in page and 'content="&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in page
    assert '<meta name="stoker-asks-for-key" content="true">' in page


async def test_the_page_may_be_left_out(tokenizer: Tokenizer) -> None:
    metrics = Metrics("m")
    engine = AsyncLLM(ClientConfig(socket_dir="/nowhere"), tokenizer, [metrics])
    config = ApiConfig(model=ModelConfig(uri="file:///models/m"), enable_playground=False)
    state = make_state(config, engine, tokenizer, metrics, Drain(1.0))
    app = make_edge(config).wrap(ApiApp(state, None), metrics, state.drain)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        response = await client.get("/")
    assert response.status_code == 404 and response.json()["error"]["code"] == "unknown_url"
