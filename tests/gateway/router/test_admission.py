import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import get_args

import pytest

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.admission.caller import ANYONE, Caller
from stoker_gateway.router.admission.model_queue import RELEASED_PER_TICK, ModelQueue
from stoker_gateway.router.admission.room import has_room
from stoker_gateway.router.fleet import FleetChange
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.policy import RoutingKey
from stoker_gateway.router.replica_load import ReplicaLoad
from stoker_gateway.router.served_model import ServedModel
from stoker_gateway.router.traffic import LoadBalancing, QueueConfig, TrafficConfig

DEADLINE_SECONDS = 20.0


def _model(num_replicas: int = 1, max_requests: int = 256, timeout: str = "60s") -> ServedModel:
    model = ServedModel(
        DeploymentView(
            namespace="default",
            name="m",
            uid="uid",
            created=0,
            served_names=("m",),
            replicas=num_replicas,
            traffic=TrafficConfig(queue=QueueConfig(max_requests=max_requests, timeout=timeout)),
            endpoints=(),
        )
    )
    return _scale(model, num_replicas)


def _scale(model: ServedModel, num_replicas: int) -> ServedModel:
    endpoints = tuple(EndpointView(Address("127.0.0.1", 8000 + index), f"pod-{index}", is_ready=True) for index in range(num_replicas))
    model.update(replace(model.view, endpoints=endpoints))
    return model


def _fill(model: ServedModel) -> None:
    for endpoint in model.endpoints:
        endpoint.load = ReplicaLoad(time.monotonic() + 1000, running=4, waiting=8, kv_cache_usage=1.0)


def _yes() -> bool:
    return True


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def _refusal(work: Awaitable[object]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await work
    return refused.value


async def test_a_request_goes_on_at_once_where_a_replica_can_take_it() -> None:
    queue = ModelQueue(_model(), _yes)
    assert queue.try_enter(ANYONE)
    queue.leave(ANYONE)


async def test_replicas_that_have_enough_at_hand_are_full_while_they_say_so() -> None:
    model = _model(num_replicas=2)
    now = time.monotonic()
    _fill(model)
    assert not has_room(model, now)
    model.endpoints[1].load = ReplicaLoad(now, running=400, waiting=60, kv_cache_usage=1.0)
    assert has_room(model, now)
    model.endpoints[1].num_in_flight = 500
    assert not has_room(model, now)
    model.endpoints[1].load = ReplicaLoad(now - 60, running=400, waiting=60, kv_cache_usage=1.0)
    assert has_room(model, now)


async def test_a_replica_that_is_ejected_is_no_room_while_another_is_not() -> None:
    model = _model(num_replicas=2)
    now = time.monotonic()
    full, ejected = model.endpoints
    full.load = ReplicaLoad(now, running=4, waiting=50, kv_cache_usage=1.0)
    assert has_room(model, now)
    ejected.health.ejected_until = now + 10
    assert not has_room(model, now)
    full.health.ejected_until = now + 10
    assert has_room(model, now), "where all are ejected, they are tried"


@pytest.mark.parametrize("policy", get_args(LoadBalancing))
async def test_a_replica_that_is_full_gets_nothing_while_another_is_not(policy: LoadBalancing) -> None:
    model = _model(num_replicas=2)
    model.update(replace(model.view, traffic=TrafficConfig(load_balancing=policy, session_header="x")))
    now = time.monotonic()
    full, empty = model.endpoints
    full.load = ReplicaLoad(now, running=4, waiting=50, kv_cache_usage=1.0)
    keys = [RoutingKey(b"%d" % index * 500, str(index)) for index in range(20)]
    assert {model.choose(key, (), now) for key in keys} == {empty}
    assert model.choose(keys[0], [empty], now) is full, "where nothing else is left"


async def test_what_waits_without_replicas_is_bounded_and_the_rest_is_told_at_once() -> None:
    model = _model(num_replicas=0, max_requests=32)
    queue = ModelQueue(model, _yes)
    waiting = [asyncio.create_task(queue.wait(ANYONE)) for _ in range(50)]
    await _until(lambda: sum(task.done() for task in waiting) == 18)
    refused = [task for task in waiting if task.done()]
    errors = [await _refusal(task) for task in refused]
    assert {(error.status, error.code, error.headers["Retry-After"]) for error in errors} == {(503, "queue_full", "1")}
    assert len(queue) == 32
    _scale(model, 1)
    await _until(lambda: len(queue) < 32)
    assert len(queue) >= 32 - RELEASED_PER_TICK * 2
    await asyncio.gather(*(task for task in waiting if task not in refused))
    assert len(queue) == 0


async def test_nothing_waits_here_where_nothing_may() -> None:
    model = _model(num_replicas=1, max_requests=0)
    queue = ModelQueue(model, _yes)
    _fill(model)
    assert queue.try_enter(ANYONE)
    _scale(model, 0)
    assert not queue.try_enter(ANYONE)
    assert (await _refusal(queue.wait(ANYONE))).status == 503


@pytest.mark.case("C102")
async def test_who_has_waited_too_long_is_told() -> None:
    queue = ModelQueue(_model(num_replicas=0, timeout="50ms"), _yes)
    error = await _refusal(queue.wait(ANYONE))
    assert (error.status, error.code) == (503, "queue_timeout")
    assert len(queue) == 0


async def test_who_waits_for_a_model_that_goes_is_told() -> None:
    admission = Admission(None)
    model = _model(num_replicas=0)
    waiting = asyncio.create_task(admission.queue(model).wait(ANYONE))
    await _until(lambda: admission.num_waiting(model) == 1)
    admission.on_fleet_change(FleetChange((), (model,)))
    assert (await _refusal(waiting)).code == "model_not_found"


async def test_who_waits_for_replicas_that_do_not_come_back_is_told_when_the_gateway_leaves() -> None:
    admission = Admission(None)
    busy, idle = _model(), _model(num_replicas=0)
    idle.view = replace(idle.view, uid="other")
    _fill(busy)
    served, refused = (asyncio.create_task(admission.queue(model).wait(ANYONE)) for model in (busy, idle))
    await _until(lambda: admission.num_waiting(busy) == admission.num_waiting(idle) == 1)
    admission.may_get_replicas = lambda: False
    assert (await _refusal(refused)).code == "draining" and not served.done()
    assert (await _refusal(admission.queue(idle).wait(ANYONE))).status == 503
    busy.endpoints[0].load = None
    await served


async def test_a_client_that_leaves_gives_its_place_to_the_next() -> None:
    model = _model()
    queue = ModelQueue(model, _yes)
    _fill(model)
    first, second = (asyncio.create_task(queue.wait(ANYONE)) for _ in range(2))
    await _until(lambda: len(queue) == 2)
    first.cancel()
    await asyncio.wait({first})
    assert len(queue) == 1
    model.endpoints[0].load = None
    await second
    queue.leave(ANYONE)


async def test_a_client_that_leaves_as_its_turn_comes_gives_it_to_the_next() -> None:
    model = _model()
    queue = ModelQueue(model, _yes)
    assert queue.try_enter(ANYONE)
    _fill(model)
    first, second = (asyncio.create_task(queue.wait(ANYONE)) for _ in range(2))
    await _until(lambda: len(queue) == 2)
    model.endpoints[0].load = None
    queue.leave(ANYONE)
    first.cancel()
    await asyncio.wait({first, second})
    assert first.cancelled() and second.exception() is None


async def test_callers_have_their_turns_by_what_they_have_in_flight_and_not_by_how_much_they_ask() -> None:
    model = _model()
    queue = ModelQueue(model, _yes)
    _fill(model)
    greedy, modest = Caller("greedy"), Caller("modest")
    order: list[str] = []

    async def ask(caller: Caller) -> None:
        await queue.wait(caller)
        order.append(caller.name)

    tasks = [asyncio.create_task(ask(greedy)) for _ in range(6)]
    await _until(lambda: len(queue) == 6)
    tasks += [asyncio.create_task(ask(modest)) for _ in range(2)]
    await _until(lambda: len(queue) == 8)
    model.endpoints[0].load = None
    await asyncio.gather(*tasks)
    assert sorted(order[:4]) == ["greedy", "greedy", "modest", "modest"]


async def test_lower_priorities_go_first() -> None:
    model = _model()
    queue = ModelQueue(model, _yes)
    _fill(model)
    batch, chat = Caller("batch", priority=10), Caller("chat", priority=0)
    order: list[str] = []

    async def ask(caller: Caller) -> None:
        await queue.wait(caller)
        order.append(caller.name)

    tasks = [asyncio.create_task(ask(caller)) for caller in (batch, batch, chat, chat)]
    await _until(lambda: len(queue) == 4)
    model.endpoints[0].load = None
    await asyncio.gather(*tasks)
    assert order == ["chat", "chat", "batch", "batch"]


async def test_a_full_queue_costs_the_caller_that_fills_it() -> None:
    model = _model(num_replicas=0, max_requests=4)
    queue = ModelQueue(model, _yes)
    greedy, modest = Caller("greedy"), Caller("modest")
    of_greedy = [asyncio.create_task(queue.wait(greedy)) for _ in range(4)]
    await _until(lambda: len(queue) == 4)
    of_modest = asyncio.create_task(queue.wait(modest))
    await _until(of_greedy[3].done)
    assert (await _refusal(of_greedy[3])).code == "queue_full"
    assert (await _refusal(queue.wait(greedy))).code == "queue_full"
    _scale(model, 1)
    await asyncio.gather(*of_greedy[:3], of_modest)


async def test_the_place_of_a_client_that_has_just_left_is_free() -> None:
    model = _model(num_replicas=0, max_requests=1)
    queue = ModelQueue(model, _yes)
    first = asyncio.create_task(queue.wait(Caller("greedy", priority=1)))
    await _until(lambda: len(queue) == 1)
    first.cancel()
    second = asyncio.create_task(queue.wait(Caller("modest")))
    await asyncio.wait({first})
    assert first.cancelled()
    _scale(model, 1)
    await second


async def test_a_thousand_clients_that_leave_take_no_place_with_them() -> None:
    model = _model(max_requests=2000)
    queue = ModelQueue(model, _yes)
    _fill(model)
    leaving = [asyncio.create_task(queue.wait(ANYONE)) for _ in range(1000)]
    await _until(lambda: len(queue) == 1000)
    model.endpoints[0].load = None
    await _until(lambda: any(task.done() for task in leaving))
    for task in leaving:
        if task.done():
            queue.leave(ANYONE)
        task.cancel()
    await asyncio.wait(leaving)
    assert len(queue) == 0 and queue.try_enter(ANYONE)
