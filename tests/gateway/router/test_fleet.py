"""Fleet: what a source says becomes live objects, found by name."""

import pytest

from stoker_gateway.router.fleet import Fleet, FleetChange
from stoker_gateway.router.fleet_view import Address, DeploymentView, EndpointView
from stoker_gateway.router.policy import RoutingKey
from stoker_gateway.router.traffic import TrafficConfig


def deployment(name: str, *names: str, namespace: str = "default", created: int = 0, endpoints: tuple[EndpointView, ...] = ()) -> DeploymentView:
    return DeploymentView(namespace, name, f"uid-{namespace}-{name}", created, names or (name,), 1, TrafficConfig(), endpoints)


def endpoint(pod: str, host: str = "10.0.0.1", port: int = 8000, *, is_ready: bool = True) -> EndpointView:
    return EndpointView(Address(host, port), pod, is_ready)


def test_a_model_is_found_by_its_names_and_by_namespace_and_name() -> None:
    fleet = Fleet()
    assert not fleet.is_synced
    fleet.update((deployment("chat", "org/chat", "alias"),))
    assert fleet.is_synced
    model = fleet.find("org/chat")
    assert model is not None and model is fleet.find("alias") is fleet.find("default/chat")
    assert fleet.find("chat") is None and fleet.find("ORG/chat") is None
    assert model.names == ("org/chat", "alias")


@pytest.mark.parametrize("turn", [1, -1])
def test_a_name_belongs_to_the_oldest_that_claims_it(turn: int) -> None:
    views = (deployment("a", "m", namespace="z", created=5), deployment("b", "m", namespace="y", created=9), deployment("c", "m", "own", created=5))
    fleet = Fleet()
    fleet.update(views[::turn])
    owner, later, same_age = (fleet.find(name) for name in ("m", "y/b", "z/a"))
    assert owner is not None and owner.view.name == "c" and owner.names == ("m", "own") and owner.names_taken == ()
    assert later is not None and later.names == ("y/b",) and later.names_taken == (("m", "default/c"),)
    assert same_age is not None and same_age.view.name == "a" and same_age.names_taken == (("m", "default/c"),)
    assert [model.view.name for model in fleet.models] == ["c", "a", "b"]


def test_a_name_goes_to_the_next_claimant_once_its_owner_is_gone() -> None:
    old, young = deployment("old", "m", created=1), deployment("young", "m", created=2)
    fleet = Fleet()
    fleet.update((old, young))
    model = fleet.find("default/young")
    fleet.update((young,))
    assert fleet.find("m") is model is not None
    assert model.names == ("m",) and model.names_taken == ()


def test_nobody_takes_the_full_name_of_another() -> None:
    fleet = Fleet()
    fleet.update((deployment("thief", "prod/chat", namespace="evil", created=1), deployment("chat", namespace="prod", created=2)))
    model = fleet.find("prod/chat")
    assert model is not None and model.view.namespace == "prod"
    thief = fleet.find("evil/thief")
    assert thief is not None and thief.names == ("evil/thief",) and thief.names_taken == (("prod/chat", "prod/chat"),)


def test_a_model_may_claim_its_own_full_name_and_one_name_twice() -> None:
    fleet = Fleet()
    fleet.update((deployment("chat", "default/chat", "x", "x"),))
    model = fleet.find("default/chat")
    assert model is not None and model.names == ("default/chat", "x") and model.names_taken == ()


def test_an_update_keeps_the_objects_of_what_is_still_there() -> None:
    fleet = Fleet()
    fleet.update((deployment("m", endpoints=(endpoint("a"), endpoint("b", "10.0.0.2"))),))
    model = fleet.find("m")
    assert model is not None
    kept = model.endpoints[0]
    kept.num_in_flight = 3
    fleet.update((deployment("m", "n", endpoints=(endpoint("c", "10.0.0.3"), endpoint("a", is_ready=False))),))
    assert fleet.find("n") is model and fleet.find("m") is None
    assert model.endpoints[1] is kept and kept.num_in_flight == 3 and not kept.is_ready
    assert [each.view.pod for each in model.endpoints] == ["c", "a"]


@pytest.mark.parametrize("now", [endpoint("a", port=9000), endpoint("b")], ids=["another port", "another pod"])
def test_another_port_or_pod_is_another_endpoint(now: EndpointView) -> None:
    fleet, changes = Fleet(), list[FleetChange]()
    fleet.listeners.append(changes.append)
    fleet.update((deployment("m", endpoints=(endpoint("a"),)),))
    model = fleet.find("m")
    assert model is not None
    before = model.endpoints[0]
    fleet.update((deployment("m", endpoints=(now,)),))
    assert model.endpoints[0] is not before and model.endpoints[0].address == now.address
    assert changes[-1] == FleetChange((before,), ())


def test_a_removed_endpoint_gets_nothing_new_from_whoever_still_has_it() -> None:
    fleet, changes = Fleet(), list[FleetChange]()
    fleet.listeners.append(changes.append)
    fleet.update((deployment("m", endpoints=(endpoint("a"),)),))
    model = fleet.find("m")
    assert model is not None
    gone = model.endpoints[0]
    gone.num_in_flight = 1
    fleet.update(())
    assert fleet.find("m") is None and fleet.models == []
    assert changes[-1] == FleetChange((gone,), (model,))
    assert not gone.is_ready and gone.num_in_flight == 1
    assert model.choose(RoutingKey(), (), 0.0) is None


def test_a_deployment_made_anew_under_its_old_name_is_another_model() -> None:
    fleet = Fleet()
    view = deployment("m", endpoints=(endpoint("a"),))
    fleet.update((view,))
    before = fleet.find("m")
    fleet.update((DeploymentView("default", "m", "another", 1, ("m",), 1, TrafficConfig(), view.endpoints),))
    after = fleet.find("m")
    assert before is not None and after is not None and after is not before and after.endpoints[0] is not before.endpoints[0]
