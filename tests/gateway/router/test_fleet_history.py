from dataclasses import replace

import pytest

from stoker_gateway.router import fleet_history
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_history import MAX_OBSERVATIONS
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.traffic import TrafficConfig

NOW = 50.0


def pod(number: int, *, is_ready: bool = True) -> EndpointView:
    return EndpointView(Address("10.0.0.1", number), f"pod-{number}", is_ready)


def update(fleet: Fleet, *endpoints: EndpointView) -> list[Endpoint]:
    fleet.update((DeploymentView("default", "m", "uid", 0, ("m",), len(endpoints), TrafficConfig(), endpoints),))
    return fleet.models[0].endpoints


def seen(fleet: Fleet) -> list[tuple[str, str]]:
    return [(each.pod, each.text) for each in fleet.history.changes]


def failures(fleet: Fleet) -> list[tuple[str, str, int]]:
    return [(each.kind, each.text, each.count) for each in fleet.history.failures]


def test_what_is_there_at_first_is_no_news_and_what_comes_later_is() -> None:
    fleet = Fleet()
    update(fleet, pod(1))
    assert seen(fleet) == []
    update(fleet, pod(1), pod(2, is_ready=False))
    update(fleet, pod(1), pod(2))
    update(fleet, pod(1, is_ready=False), pod(2))
    assert seen(fleet) == [("pod-2", "not ready yet"), ("pod-2", "ready"), ("pod-1", "not ready")]


def test_a_drain_is_seen_with_the_requests_that_are_left() -> None:
    fleet = Fleet()
    leaving, _ = update(fleet, pod(1), pod(2))
    leaving.num_in_flight = 3
    update(fleet, replace(pod(1, is_ready=False), is_terminating=True), pod(2))
    leaving.num_in_flight = 1
    update(fleet, pod(2))
    assert seen(fleet) == [
        ("pod-1", "draining with 3 requests of this gateway in flight"),
        ("pod-1", "gone with 1 request of this gateway in flight"),
    ]
    assert {each.model for each in fleet.history.changes} == {"m"}


def test_failures_alike_count_as_one_and_the_ejection_is_seen() -> None:
    fleet = Fleet()
    (endpoint,) = update(fleet, pod(1))
    for _ in range(4):
        fleet.failed(endpoint, "no connection", NOW)
    fleet.readmit(endpoint)
    assert failures(fleet) == [
        ("ejected", "ejected for 4 s: 3 failures in a row", 1),
        ("failed", "no connection", 4),
        ("readmitted", "says that it is ready and gets requests again", 1),
    ]
    assert not endpoint.health.is_ejected(NOW)


def test_what_comes_again_much_later_is_another_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_history, "JOIN_SECONDS", -1.0)
    fleet = Fleet()
    (endpoint,) = update(fleet, pod(1))
    fleet.failed(endpoint, "no connection", NOW)
    fleet.failed(endpoint, "no connection", NOW)
    assert failures(fleet) == [("failed", "no connection", 1)] * 2


def test_observations_are_bounded_and_pods_that_come_hide_no_failure() -> None:
    fleet = Fleet()
    (endpoint,) = update(fleet, pod(1))
    fleet.failed(endpoint, "x" * 5000, NOW)
    update(fleet, *(pod(number) for number in range(1, 3 * MAX_OBSERVATIONS)))
    assert len(seen(fleet)) == MAX_OBSERVATIONS and len(failures(fleet)) == 1
    for number in range(3 * MAX_OBSERVATIONS):
        fleet.failed(endpoint, f"cause {number}", NOW)
    assert len(failures(fleet)) == MAX_OBSERVATIONS and max(len(text) for _, text, _ in failures(fleet)) <= 200
