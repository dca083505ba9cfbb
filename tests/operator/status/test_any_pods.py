"""Whatever pods there are, the status is one that the API server takes and that says nothing untrue."""

import re
from datetime import datetime
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker_operator.observed import Rendering
from stoker_operator.status.reasons import Reason
from stoker_operator.status.text import MAX_MESSAGE_BYTES
from stoker_operator.status_types import InferenceDeploymentStatus

REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
TIMES = st.integers(0, 100)
TEXTS = st.one_of(
    st.sampled_from(["", "x" * 3000, 'secret "s" not found', '{"reason":"Drained","phase":"ready","completed":99999999999999999999,"seconds":1e300}']),
    st.text(max_size=40),
)
ENDED = st.tuples(st.sampled_from([-1, 0, 1, 3, 4, 70, 137, 139, 255, 4_000_000_000]), st.sampled_from(["Error", "OOMKilled", "Completed", ""]), TEXTS, TIMES)
WAITING = st.tuples(st.sampled_from(["CrashLoopBackOff", "ErrImagePull", "CreateContainerConfigError", "PodInitializing", ""]), TEXTS)
CONTAINER = st.tuples(st.one_of(st.none(), ENDED, WAITING), st.one_of(st.none(), ENDED))
POD = st.fixed_dictionaries(
    {
        "engine": CONTAINER,
        "api": CONTAINER,
        "ready": st.one_of(st.none(), TIMES),
        "template": st.sampled_from(["6f7c9d", "5b8d4c"]),
        "phase": st.sampled_from(["Pending", "Running", "Failed"]),
        "deleted": st.one_of(st.none(), TIMES),
        "unscheduled": st.one_of(st.none(), TEXTS),
    }
)
DEPLOYMENT = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "total": st.integers(0, 3),
            "updated": st.integers(0, 3),
            "available": st.integers(0, 3),
            "generation": st.integers(1, 3),
            "observed": st.integers(1, 3),
            "paused": st.booleans(),
        }
    ),
)


def to_state(world: Any, drawn: Any) -> dict[str, Any] | None:
    if drawn is None:
        return None
    return world.waiting(*drawn) if len(drawn) == 2 else world.terminated(drawn[0], drawn[1], drawn[2], end=drawn[3])


def to_pod(world: Any, index: int, drawn: dict[str, Any]) -> dict[str, Any]:
    containers = {name: world.container(name, to_state(world, drawn[name][0]), to_state(world, drawn[name][1])) for name in ("engine", "api")}
    more = {} if drawn["deleted"] is None else {"deleted": drawn["deleted"]}
    if drawn["unscheduled"] is not None:
        more["conditions"] = [world.condition("PodScheduled", "False", "Unschedulable", drawn["unscheduled"])]
    return world.pod(f"p{index}", ready=drawn["ready"], template=drawn["template"], phase=drawn["phase"], **containers, **more)


def check(status: InferenceDeploymentStatus) -> None:
    msgspec.json.decode(msgspec.json.encode(status), type=InferenceDeploymentStatus)
    assert [each.type for each in status.conditions] == sorted({each.type for each in status.conditions})
    for condition in status.conditions:
        assert REASON.fullmatch(condition.reason) and datetime.fromisoformat(condition.last_transition_time)
        assert len(condition.message.encode()) <= MAX_MESSAGE_BYTES and condition.observed_generation == status.observed_generation
    ready = next(each for each in status.conditions if each.type == "Ready")
    assert ready.reason in set(Reason) and (ready.status == "True") == (ready.reason in ("AllReplicasReady", "ScaledToZero"))


@given(st.lists(POD, max_size=3), DEPLOYMENT, st.integers(0, 3), st.sampled_from(Rendering), st.lists(POD, max_size=2))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_pods_give_one_valid_status_that_is_ready_only_if_all_is(
    world: Any, pods: list[Any], counts: dict[str, Any] | None, desired: int, rendering: Rendering, later: list[Any]
) -> None:
    scene = world.scene(replicas=desired)
    live = world.deployment(total=0, updated=0, available=0) if counts is None else world.deployment(desired=desired, **counts)
    scene.show(*(to_pod(world, index, drawn) for index, drawn in enumerate(pods)), deployment=live, rendering=rendering)
    first = scene.status
    check(first)
    if scene.brief()[0] == "True":
        assert rendering is Rendering.CURRENT and live["status"]["observedGeneration"] >= live["metadata"]["generation"]
        assert first.replicas == first.updated_replicas == first.available_replicas == desired
    assert scene.build().status == scene.build().status
    assert all(a.last_transition_time == b.last_transition_time for a, b in zip(first.conditions, scene.status.conditions, strict=True) if a.status == b.status)
    check(scene.show(*(to_pod(world, index, drawn) for index, drawn in enumerate(later)), deployment=live, rendering=rendering).status)
