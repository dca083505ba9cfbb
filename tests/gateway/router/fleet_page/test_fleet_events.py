import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stoker_gateway.router.fleet_page import board, feed
from stoker_gateway.router.fleet_page.board import KEPT_TICKS, FleetBoard
from stoker_gateway.router.fleet_view import DeploymentView
from stoker_gateway.router.health_record import FIRST_SECONDS
from stoker_gateway.router.replica_load import FRESH_SECONDS, ReplicaLoad
from stoker_gateway.router.traffic import TrafficConfig

MakeDeployment = Callable[..., DeploymentView]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_the_first_message_has_everything(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    taken = deployment(2, 1, name="late", served_names=("m1",), replicas=3, traffic=TrafficConfig(load_balancing="PrefixHash"))
    gateway.fleet.update((deployment(1), taken))
    first, second = gateway.fleet.models[0].endpoints
    first.num_in_flight = 2
    first.load = ReplicaLoad(now(), running=3, waiting=1, kv_cache_usage=0.12345, generation_tokens=10, tokens_per_second=41.26)
    for _ in range(3):
        gateway.fleet.failed(second, "no connection", now())
    async with gateway.watch() as next_message:
        message = await next_message()
    assert message["whole"] and message["isSynced"] and message["gone"] == []
    one, two = message["models"]
    assert (one["names"], one["wanted"], one["ready"], one["loadBalancing"], one["inFlight"], one["waiting"]) == (["m1"], 2, 2, "LeastRequest", 2, 0)
    told = {"running": 3, "waiting": 1, "kvCacheUsage": 0.123, "tokensPerSecond": 41.3}
    assert one["pods"][0] == {"pod": "m1-0", "address": "10.0.1.0:8000", "state": "ready", "inFlight": 2} | told
    ejected_until = one["pods"][1].pop("ejectedUntil")
    assert one["pods"][1] == {"pod": "m1-1", "address": "10.0.1.1:8000", "state": "ejected", "failures": 3}
    assert 0 <= ejected_until - message["now"] < FIRST_SECONDS + 1
    assert (two["names"], two["taken"], two["wanted"], two["loadBalancing"]) == (["default/late"], [["m1", "default/m1"]], 3, "PrefixHash")
    assert [(each["pod"], each["kind"], each["count"]) for each in message["failures"]] == [("m1-1", "failed", 3), ("m1-1", "ejected", 1)]


async def test_later_messages_have_what_has_changed(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    views = [deployment(index) for index in range(5)]
    gateway.fleet.update(tuple(views))
    async with gateway.watch() as next_message:
        assert len((await next_message())["models"]) == 5
        gateway.fleet.models[3].endpoints[1].num_in_flight = 7
        message = await next_message()
        assert not message["whole"] and [(model["uid"], model["inFlight"]) for model in message["models"]] == [("uid-3", 7)]
        leaving = replace(views[4].endpoints[0], is_ready=False, is_terminating=True)
        gateway.fleet.update((*views[1:4], replace(views[4], endpoints=(leaving, views[4].endpoints[1]))))
        message = await next_message()
        assert message["gone"] == ["uid-0"] and [model["uid"] for model in message["models"]] == ["uid-4"]
        assert message["models"][0]["pods"][0]["state"] == "terminating"
        assert [(each["pod"], each["kind"]) for each in message["changes"]] == [("m4-0", "draining"), ("m0-0", "gone"), ("m0-1", "gone")]


async def test_what_a_replica_told_long_ago_is_marked(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    gateway.fleet.update((deployment(1, 1),))
    (endpoint,) = gateway.fleet.models[0].endpoints
    endpoint.load = ReplicaLoad(now() - FRESH_SECONDS - 1, running=3, waiting=0, kv_cache_usage=0.5, tokens_per_second=9.0)
    async with gateway.watch() as next_message:
        (pod,) = (await next_message())["models"][0]["pods"]
    assert (pod["running"], pod["isOld"], "tokensPerSecond" in pod) == (3, True, False)


async def test_before_the_first_list_the_page_learns_that_nothing_is_known(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    async with gateway.watch() as next_message:
        assert not (await next_message())["isSynced"]
        gateway.fleet.update(())
        assert (await next_message())["isSynced"]


async def test_nothing_is_computed_while_nobody_looks(start_gateway: Any, deployment: MakeDeployment, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    num_looks = 0
    look = FleetBoard.look

    async def counted(self: FleetBoard) -> None:
        nonlocal num_looks
        num_looks += 1
        await look(self)

    monkeypatch.setattr(FleetBoard, "look", counted)
    gateway = await start_gateway()
    gateway.fleet.update((deployment(1),))
    await asyncio.sleep(0.03)
    assert num_looks == 0
    async with gateway.watch() as next_message:
        await next_message()
        await until(lambda: num_looks > 2)
    await until(lambda: gateway.feed.num_watchers == 0)
    num_then = num_looks
    await asyncio.sleep(0.05)
    assert num_looks == num_then


async def test_watchers_are_bounded_and_one_that_leaves_makes_place(
    start_gateway: Any, deployment: MakeDeployment, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_WATCHERS", 1)
    gateway = await start_gateway()
    async with gateway.watch() as next_message:
        await next_message()
        refused = await gateway.client.get("/fleet/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_watchers") and "retry-after" in refused.headers
    await until(lambda: gateway.feed.num_watchers == 0)
    async with gateway.watch() as next_message:
        assert (await next_message())["whole"]


async def test_silence_is_broken_by_heartbeats_and_the_end_of_the_gateway_ends_the_stream(start_gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.02)
    gateway = await start_gateway()
    async with gateway.client.stream("GET", "/fleet/events") as response:
        lines = response.aiter_lines()
        async with asyncio.timeout(20):
            while await anext(lines) != ": nothing new":
                continue
            gateway.feed.close()
            assert all(not line.startswith("data:") for line in [line async for line in lines])


async def test_a_thousand_models_are_looked_at_in_slices_and_cost_bytes_once(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    gateway.fleet.update(tuple(deployment(index, 4) for index in range(1000)))
    async with gateway.watch() as next_message:
        assert len((await next_message())["models"]) == 1000
        num_turns = 0

        async def count_turns() -> None:
            nonlocal num_turns
            while True:
                num_turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        one = FleetBoard(gateway.fleet, gateway.admission)
        await one.look()
        counting.cancel()
        assert num_turns >= 1000 // board.MODELS_PER_SLICE
        await one.look()
        assert one.tick == 1, "nothing has changed"
        gateway.fleet.models[500].endpoints[0].num_in_flight = 1
        message = await next_message()
        assert [model["uid"] for model in message["models"]] == ["uid-500"]


async def test_whoever_has_read_nothing_for_long_gets_everything(start_gateway: Any, deployment: MakeDeployment) -> None:
    gateway = await start_gateway()
    gateway.fleet.update((deployment(1), deployment(2)))
    one = FleetBoard(gateway.fleet, gateway.admission)
    await one.look()
    gateway.fleet.update((deployment(1),))
    for turn in range(KEPT_TICKS):
        gateway.fleet.models[0].endpoints[0].num_in_flight = turn
        await one.look()
    assert b'"whole":true' in one.message(1) and b'"whole":false' in one.message(2)
