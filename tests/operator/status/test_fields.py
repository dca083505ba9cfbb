from typing import Any

import msgspec

from stoker_operator.status.fields import is_told, leftovers, told_fields
from stoker_operator.status_types import LastDrain

ROUTABLE = {"type": "Routable", "status": "True", "reason": "Served", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
CACHED = {**ROUTABLE, "type": "ModelCached"}


def _told(world: Any) -> dict[str, Any]:
    return told_fields(world.scene().show(world.pod(ready=9)).status)


def _live(told: dict[str, Any]) -> dict[str, Any]:
    """As the API server gives it back, with the conditions of others and in any order."""
    live: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(told))
    return {**live, "conditions": [ROUTABLE, *reversed(live["conditions"])]}


def test_what_is_not_known_is_not_told(world: Any) -> None:
    assert "lastDrain" not in _told(world) and "download" not in _told(world)["startup"]["phases"]


def test_what_others_tell_makes_no_difference(world: Any) -> None:
    told = _told(world)
    assert is_told(told, {**_live(told), "ofAnother": 1}) and leftovers(told, {**_live(told), "ofAnother": 1}) == []
    assert not is_told(told, {}) and not is_told(told, {**_live(told), "replicas": 7})


def test_what_is_ours_and_no_longer_told_is_taken_out_wherever_it_is(world: Any) -> None:
    told = _told(world)
    live = _live(told)
    live["model"] = {"sizeBytes": 1}
    live["startup"]["phases"]["download"] = 3.0
    live["conditions"] = [CACHED, *live["conditions"]]
    assert not is_told(told, live)
    assert leftovers(told, live) == [
        {"op": "remove", "path": "/status/startup/phases/download"},
        {"op": "remove", "path": "/status/model"},
        {"op": "test", "path": "/status/conditions/0/type", "value": "ModelCached"},
        {"op": "remove", "path": "/status/conditions/0"},
    ]


def test_what_is_told_newly_is_a_difference(world: Any) -> None:
    status = world.scene().show(world.pod(ready=9)).status
    drain = LastDrain(time="2026-01-01T00:00:00Z", pod="p", in_flight_at_start=1, completed=1, aborted=0, duration_seconds=2)
    assert not is_told(told_fields(msgspec.structs.replace(status, last_drain=drain)), _live(told_fields(status)))
