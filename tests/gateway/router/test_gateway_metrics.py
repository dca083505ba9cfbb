"""The gateway's numbers: one page for all who ask at once, made beside the event loop, without series of what is gone."""

import asyncio
import inspect
import re
from dataclasses import replace

from stoker_gateway.openai import errors
from stoker_gateway.router import errors as router_errors
from stoker_gateway.router.admission import refusals
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.gateway_metrics import GatewayMetrics
from stoker_gateway.router.model_counts import ERRORS
from stoker_gateway.router.routed_request import RoutedRequest
from stoker_gateway.router.traffic import TrafficConfig


def view(name: str) -> DeploymentView:
    endpoints = tuple(EndpointView(Address("10.0.0.1", port), f"{name}-{port}", is_ready=True) for port in (1, 2))
    return DeploymentView("default", name, f"uid-{name}", 0, (name,), 2, TrafficConfig(), endpoints)


def metrics_of(*names: str) -> tuple[Fleet, GatewayMetrics]:
    fleet, admission = Fleet(), Admission(None)
    metrics = GatewayMetrics(fleet, admission)
    fleet.listeners.append(metrics.on_fleet_change)
    fleet.update(tuple(view(name) for name in names))
    return fleet, metrics


def ended(model: str, **fields: str) -> RoutedRequest:
    return RoutedRequest("id", "POST", "/v1/completions", route="/v1/completions", model=model, status=200, **fields)  # type: ignore[arg-type]


async def test_a_page_of_many_models_is_written_while_the_event_loop_goes_on() -> None:
    names = [f"model-{index}" for index in range(300)]
    _, metrics = metrics_of(*names)
    for name in names:
        metrics.observe(ended(name))
    pages = [asyncio.create_task(metrics.render()) for _ in range(20)]
    num_turns = 0
    while not all(page.done() for page in pages):
        await asyncio.sleep(0)
        num_turns += 1
    assert num_turns > 20
    assert len({id(await page) for page in pages}) == 1, "all who ask meanwhile get the same"
    assert b'stoker_gateway_http_requests_total{model_name="model-299",path="/v1/completions",status="200"} 1.0' in await pages[0]


async def test_who_leaves_does_not_take_the_page_from_others() -> None:
    _, metrics = metrics_of("m")
    first, second = asyncio.create_task(metrics.render()), asyncio.create_task(metrics.render())
    await asyncio.sleep(0)
    first.cancel()
    assert b'stoker_gateway_endpoints{model_name="m",state="ready"} 2.0' in await second


async def test_a_page_is_made_anew_when_it_is_old() -> None:
    _, metrics = metrics_of("m")
    before = await metrics.render()
    metrics.observe(ended("m"))
    async with asyncio.timeout(10):
        while (after := await metrics.render()) == before:
            await asyncio.sleep(0.001)
    assert b'status="200"} 1.0' in after


async def test_what_is_gone_or_has_another_name_has_no_series() -> None:
    fleet, metrics = metrics_of("m", "gone")
    for name, key in (("m", "old-key"), ("gone", "")):
        metrics.observe(ended(name, key_name=key))
    fleet.update((replace(view("m"), served_names=("new", "m")),))
    metrics.observe(ended("new"))
    metrics.observe(ended("gone"))
    page = (await metrics.render()).decode()
    assert set(re.findall('http_requests_total{model_name="([^"]*)"', page)) == {"new"}
    assert "old-key" not in page


async def test_a_word_that_a_replica_made_up_has_no_series() -> None:
    _, metrics = metrics_of("m")
    for error in ("made_up_7", "replica_failed"):
        metrics.observe(ended("m", error=error))
    page = (await metrics.render()).decode()
    assert set(re.findall('request_errors_total{error="([^"]*)"', page)) == {"other", "replica_failed"}


def test_all_errors_of_the_gateway_have_their_series() -> None:
    texts = [inspect.getsource(module) for module in (errors, router_errors, refusals)]
    codes = {code for text in texts for found in re.findall(r'code="(\w+)"|unavailable\(.*, "(\w+)"\)', text) for code in found if code}
    assert len(codes) > 20 and codes - ERRORS == set()
