import json
from dataclasses import replace
from typing import Any

import pytest

from stoker_gateway.openai.response_ids import new_response_id
from stoker_gateway.router.fleet_view import Address, EndpointView
from stoker_gateway.router.traffic import RetryConfig, TrafficConfig

ID = new_response_id("m")


def keeper(wire: Any) -> Any:
    async def answer(request: Any, writer: Any) -> None:
        writer.write(wire.plain(json.dumps({"asked": request.line}).encode()))

    return answer


def others(wire: Any) -> Any:
    """As an api that has not the response."""

    async def answer(request: Any, writer: Any) -> None:
        if request.line.startswith("POST /v1/responses "):
            writer.write(wire.error("previous_response_not_found", "400 Bad Request"))
        else:
            writer.write(wire.error("response_not_found", "404 Not Found"))

    return answer


@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("GET", "?stream=true&starting_after=1"), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items?limit=2")]
)
async def test_what_is_asked_of_a_response_is_answered_by_the_replica_that_keeps_it(
    start_replica: Any, start_gateway: Any, wire: Any, method: str, rest: str
) -> None:
    replicas = [await start_replica(others(wire)), await start_replica(others(wire)), await start_replica(keeper(wire)), await start_replica(others(wire))]
    gateway = await start_gateway(*replicas)
    answer = await gateway.client.request(method, f"/v1/responses/{ID}{rest}")
    assert (answer.status_code, answer.json()) == (200, {"asked": f"{method} /v1/responses/{ID}{rest} HTTP/1.1"})
    assert [len(replica.requests) for replica in replicas] == [1, 1, 1, 0]
    record = gateway.records[-1]
    assert (record.route, record.model, record.attempts, record.endpoint) == ("/v1/responses/{response_id}", "m", 3, str(replicas[2].address))
    assert gateway.num_in_flight == 0


async def test_a_response_that_nobody_keeps_is_not_found_and_costs_no_replica_its_name(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replicas = [await start_replica(others(wire)) for _ in range(2)]
    gateway = await start_gateway(*replicas)
    for _ in range(5):
        answer = await gateway.client.get(f"/v1/responses/{ID}")
        assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (404, "response_not_found", "response_id")
    assert all(not endpoint.health.is_ejected(0.0) for model in gateway.fleet.models for endpoint in model.endpoints)


async def test_an_id_that_no_replica_of_the_model_makes_is_asked_of_none(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replica = await start_replica(keeper(wire))
    gateway = await start_gateway(replica)
    for path in ("resp_1", "", new_response_id("another"), ID.upper(), f"{ID}0", "x" * 4000):
        answer = await gateway.client.get(f"/v1/responses/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found") and len(answer.content) < 400
    assert replica.requests == []
    assert (await gateway.client.put(f"/v1/responses/{ID}")).status_code == 405


async def test_a_response_is_not_called_lost_while_a_replica_cannot_be_asked(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    async def drain(_request: Any, writer: Any) -> None:
        writer.write(wire.error("draining", Retry_After="1"))

    for away in (Address("127.0.0.1", 9), await start_replica(drain)):
        gateway = await start_gateway(away, await start_replica(others(wire)))
        answer = await gateway.client.get(f"/v1/responses/{ID}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replicas_unreachable") and "retry-after" in answer.headers


async def test_a_response_goes_on_where_the_one_before_is_kept(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    replicas = [await start_replica(others(wire)) for _ in range(5)] + [await start_replica(keeper(wire))]
    gateway = await start_gateway(*replicas, traffic=TrafficConfig(load_balancing="RoundRobin", retry=RetryConfig(attempts=0)))
    answer = await gateway.post("/v1/responses", input="more", previous_response_id=ID)
    assert (answer.status_code, len(replicas[-1].requests)) == (200, 1)
    gateway = await start_gateway(*replicas[:-1])
    answer = await gateway.post("/v1/responses", input="more", previous_response_id=ID)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize("turn", [1, -1])
async def test_a_response_to_go_on_from_is_not_called_lost_while_a_replica_cannot_be_asked(
    start_replica: Any, start_gateway: Any, wire: Any, turn: int
) -> None:
    async def drain(_request: Any, writer: Any) -> None:
        writer.write(wire.error("draining", Retry_After="1"))

    for away in (Address("127.0.0.1", 9), await start_replica(drain)):
        other = await start_replica(others(wire))
        gateway = await start_gateway(*(away, other)[::turn])
        for _ in range(3):
            answer = await gateway.post("/v1/responses", input="more", previous_response_id=ID)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replicas_unreachable") and "retry-after" in answer.headers


async def test_a_response_of_a_replica_that_is_not_ready_is_answered_by_it_or_not_called_lost(start_replica: Any, start_gateway: Any, wire: Any) -> None:
    other, leaving = await start_replica(others(wire)), await start_replica(keeper(wire))
    gateway = await start_gateway(other)
    for away, status in ((leaving.address, 200), (Address("127.0.0.1", 9), 503)):
        (view,) = (model.view for model in gateway.fleet.models)
        endpoint = EndpointView(away, "leaving", is_ready=False, is_terminating=True)
        gateway.fleet.update((replace(view, endpoints=(endpoint, EndpointView(other.address, "other", is_ready=True))),))
        assert (await gateway.client.get(f"/v1/responses/{ID}")).status_code == status
        assert not gateway.fleet.models[0].endpoints[0].health.is_ejected(0.0)
