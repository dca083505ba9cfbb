import asyncio
import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker_gateway.router.fleet_view import DeploymentView


async def test_the_page_may_ask_nobody_but_its_gateway(start_gateway: Any) -> None:
    page = await (await start_gateway()).client.get("/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(directive.split(" ", 1) for directive in page.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'") and policy["script-src"].startswith("'sha256-")
    assert {address for address in re.findall(r"""https?://[^\s'"]+""", page.text)} == {"http://www.w3.org/2000/svg"}
    assert '<meta name="stoker-asks-for-key" content="false">' in page.text


async def test_the_page_is_sent_when_it_has_changed(start_gateway: Any) -> None:
    gateway = await start_gateway()
    page = await gateway.client.get("/")
    kept = await gateway.client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (kept.status_code, kept.content, page.headers["cache-control"]) == (304, b"", "no-cache")
    assert (await gateway.client.get("/", headers={"If-None-Match": '"other"'})).content == page.content
    assert (await gateway.client.head("/")).content == (await gateway.client.head("/fleet/events")).content == b""
    assert [(await gateway.client.post(path)).status_code for path in ("/", "/fleet/events")] == [405, 405]


async def test_the_page_is_for_everybody_and_what_it_shows_for_those_with_a_key(start_gateway: Any, deployment: Callable[..., DeploymentView]) -> None:
    gateway = await start_gateway("secret")
    gateway.fleet.update((deployment(1),))
    page: httpx.Response = await gateway.client.get("/")
    assert page.status_code == 200 and '<meta name="stoker-asks-for-key" content="true">' in page.text and "m1" not in page.text
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        refused = await gateway.client.get("/fleet/events", headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    async with gateway.watch("secret") as next_message:
        assert [model["names"] for model in (await next_message())["models"]] == [["m1"]]


async def test_a_key_that_is_taken_away_ends_what_it_watches(start_gateway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker_gateway.router.admission.key_ring.LOOK_SECONDS", 0.01)
    gateway = await start_gateway("old")
    watching = asyncio.create_task(gateway.keys.watch())
    async with gateway.watch("old") as next_message:
        await next_message()
        (tmp_path / "keys.json").write_text(json.dumps({"keys": [{"name": "new", "sha256": sha256(b"new").hexdigest()}]}))
        message = await _first_error(gateway, next_message)
    watching.cancel()
    assert message["error"]["code"] == "invalid_api_key"


async def _first_error(gateway: Any, next_message: Any) -> Any:
    """Messages come until the file is read."""
    while True:
        gateway.fleet.is_synced = not gateway.fleet.is_synced
        if "error" in (message := await next_message()):
            return message
