from typing import Any

import msgspec
import pytest

from stoker_operator.api_answers import Startup
from stoker_operator.pod_reports import PodReport
from stoker_operator.status.objects import read_pods
from stoker_operator.status.startup import has_just_started
from stoker_operator.status_types import Condition, InferenceDeploymentStatus

POD = "smollm2-6f7c9d-aaaaa"


def test_counts_url_and_selector_are_told(world: Any) -> None:
    status = world.scene(replicas=3).show(world.pod("a", ready=9), world.pod("b"), world.pod("c", template=world.OLD, ready=1)).status
    assert (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas, status.unavailable_replicas) == (3, 2, 2, 2, 1)
    assert (status.selector, status.url) == ("stoker.dev/inference-deployment=smollm2", "http://smollm2.team.svc")


def test_before_there_is_a_deployment_nothing_serves_and_the_rollout_goes_on(world: Any) -> None:
    scene = world.scene().build()
    assert scene.brief() == ("False", "RollingOut") and scene.brief("Available") == ("False", "MinimumReplicasUnavailable")
    assert scene.brief("Progressing") == ("True", "ReplicaSetUpdated") and scene.brief("SpecAccepted") == ("True", "Accepted")


@pytest.mark.case("C095")
def test_fields_that_an_older_definition_drops_are_named_and_nothing_else_suffers(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9)).observe(missing_fields=("spec.engine.watermark", "spec.paused"))
    assert scene.brief() == ("True", "AllReplicasReady") and scene.brief("SpecAccepted") == ("True", "OutdatedDefinition")
    assert "drops spec.engine.watermark, spec.paused; apply `stoker crd`" in scene.condition("SpecAccepted").message
    assert scene.observe(missing_fields=()).brief("SpecAccepted") == ("True", "Accepted")


def test_a_pod_whose_replica_set_has_not_been_seen_is_not_called_old(world: Any) -> None:
    scene = world.scene().show(world.pod(), deployment=world.deployment(total=1, updated=1, available=0)).observe(replica_sets=())
    assert scene.condition("Ready").message == "0 of 1 replicas are available, 1 are updated."


def test_conditions_are_sorted_and_dated_by_their_status_alone(world: Any) -> None:
    scene = world.scene().show(world.pod())
    assert [each.type for each in scene.status.conditions] == ["Available", "Degraded", "EngineConnected", "Progressing", "Ready", "SpecAccepted"]
    assert {each.last_transition_time for each in scene.status.conditions} == {world.at(30)}
    scene.seconds = 50
    scene.show(world.crashed(1))
    assert scene.brief() == ("False", "EngineCrashed") and scene.condition("Ready").last_transition_time == world.at(30)
    scene.seconds = 70
    scene.show(world.pod(ready=69))
    assert scene.condition("Ready").last_transition_time == world.at(70) and scene.condition("SpecAccepted").last_transition_time == world.at(30)


def test_a_condition_of_somebody_else_is_not_told_by_us(world: Any) -> None:
    scene = world.scene(model={"uri": "hf://org/name"}).show(world.pod(ready=9))
    routable = Condition(type="Routable", status="True", reason="Routed", message="", last_transition_time=world.at(3), observed_generation=2)
    scene.status = msgspec.structs.replace(scene.status, conditions=(*scene.status.conditions, routable))
    scene.wanted = world.scene().wanted
    types = [each.type for each in scene.build().status.conditions]
    assert types == sorted(types) and not {"Routable", "ModelCached"} & set(types)


def test_nothing_new_changes_nothing(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9))
    before, scene.seconds = scene.status, 5000
    assert scene.build().status == before


def test_the_order_of_what_is_observed_does_not_matter(world: Any) -> None:
    scene = world.scene(replicas=2).show(world.crashed(1), world.pod("b"))
    other = world.scene(replicas=2)
    other.observed = scene.observed
    assert other.observe(pods=scene.observed.pods[::-1], replica_sets=scene.observed.replica_sets[::-1]).status == scene.status


def test_a_status_survives_its_way_through_the_api_server(world: Any) -> None:
    status = world.scene().show(world.crashed(1, world.words("EngineFailed", lastError="x"))).status
    assert msgspec.json.decode(msgspec.json.encode(status), type=InferenceDeploymentStatus) == status


@pytest.mark.parametrize(
    ("strategy", "available", "expected"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, 3, "True"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, 2, "False"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}, 3, "True"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "10%"}}, 3, "True"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "10%"}}, 3, "False"),
        ({"type": "Recreate"}, 3, "False"),
    ],
)
def test_available_counts_as_the_deployments_strategy_allows(world: Any, strategy: dict[str, Any], available: int, expected: str) -> None:
    pods = [world.pod(f"p{index}", ready=9 if index < available else None) for index in range(4)]
    counted = world.deployment(total=4, updated=4, available=available, desired=4, strategy=strategy)
    scene = world.scene(replicas=4).show(*pods, deployment=counted)
    assert scene.brief("Available")[0] == expected and scene.brief("Degraded")[0] == "True"


def test_one_replica_that_may_be_missing_is_not_available_when_it_is(world: Any) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    scene = world.scene().show(world.pod(), deployment=world.deployment(total=1, updated=1, available=0, strategy=strategy))
    assert scene.brief("Available") == ("False", "MinimumReplicasUnavailable") and scene.brief("Degraded")[0] == "False"


def test_progressing_is_the_deployments_until_the_rollout_is_complete(world: Any) -> None:
    def progressing(status: str, reason: str, message: str = "words") -> Any:
        stated = [world.condition("Progressing", status, reason, message)]
        return world.scene().show(world.pod(), deployment=world.deployment(total=1, updated=1, available=0, conditions=stated)).condition("Progressing")

    late = progressing("False", "ProgressDeadlineExceeded", 'ReplicaSet "smollm2-6f7c9d" has timed out progressing.')
    assert (late.status, late.reason, late.message) == ("False", "ProgressDeadlineExceeded", 'ReplicaSet "smollm2-6f7c9d" has timed out progressing.')
    assert progressing("True", "ReplicaSetUpdated").status == "True"
    assert progressing("Unknown", "DeploymentPaused").status == "Unknown"
    assert progressing("True", "NewReplicaSetAvailable").status == "False", "an old success is no progress"
    assert world.scene().show(world.pod(ready=9)).brief("Progressing") == ("False", "NewReplicaSetAvailable")


DRAIN = {"inFlightAtStart": 3, "completed": 2, "aborted": 1, "seconds": 12.5}


def test_the_drain_of_a_deleted_pod_is_told_by_its_api(world: Any) -> None:
    gone = world.pod("gone", deleted=5, ready=1, api=world.container("api", world.terminated(0, "Completed", world.words("Aborted", **DRAIN))))
    drain = world.scene().show(gone, world.pod(ready=9)).status.last_drain
    assert (drain.time, drain.pod, drain.in_flight_at_start, drain.completed, drain.aborted, drain.duration_seconds) == (world.at(20), "gone", 3, 2, 1, 12.5)


def test_the_newest_drain_stays_when_its_pod_is_gone(world: Any) -> None:
    def drained(name: str, end: float) -> Any:
        return world.pod(name, deleted=5, api=world.container("api", world.terminated(0, "Completed", world.words("Drained"), end=end)))

    scene = world.scene().show(drained("b", 40), drained("a", 30))
    assert scene.status.last_drain.pod == "b"
    assert scene.show(drained("a", 30)).status.last_drain.pod == "b"
    assert scene.show(drained("c", 50)).status.last_drain.pod == "c"


def test_an_api_that_was_stopped_before_it_served_has_drained_nothing(world: Any) -> None:
    stopped = '{"reason":"Aborted","phase":"starting"}'
    assert world.scene().show(world.pod(deleted=5, api=world.container("api", world.terminated(0, "Completed", stopped)))).status.last_drain is None


def test_a_start_is_told_in_seconds_from_the_pods_creation(world: Any) -> None:
    startup = world.scene().show(world.pod(ready=9)).status.startup
    assert (startup.last_duration_seconds, startup.phases.schedule, startup.phases.pull) == (9.0, 1.0, 1.0)


def test_the_engines_phases_are_told_where_its_pod_told_them(world: Any) -> None:
    told = Startup("ready", start_seconds={"starting": 0.1, "downloading": 3.0, "loading": 2.0, "profiling": 0.5, "warming_up": 0.25})
    scene = world.scene().show(world.pod(ready=9), reports={POD: PodReport(told)})
    phases = scene.status.startup.phases
    assert (phases.download, phases.load, phases.warmup) == (3.0, 2.0, 0.75)
    assert scene.observe(reports={}).status.startup.phases == phases


def test_a_pod_is_asked_how_it_started_until_it_is_known(world: Any) -> None:
    (pod,) = read_pods([world.pod(ready=9)])
    scene = world.scene().show(world.pod())
    assert has_just_started(pod, scene.status)
    assert not has_just_started(pod, scene.show(world.pod(ready=9)).status)


def test_a_pod_that_is_ready_again_has_not_started_again(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9))
    scene.seconds = 400
    scene.show(world.pod(since=399))
    assert scene.show(world.pod(ready=500)).status.startup.last_duration_seconds == 9.0
    restarted = world.pod(engine=world.container("engine", last=world.terminated(1)), ready=40)
    assert world.scene().show(restarted).status.startup is None


def test_the_replica_of_a_later_rollout_is_the_last_start(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9))
    scene.seconds = 20
    newer = world.pod("newer", ready=80)
    newer["metadata"]["creationTimestamp"] = world.at(20)
    scene.show(world.pod(template=world.OLD, ready=9), world.pod("newer"))
    assert scene.show(newer).status.startup.last_duration_seconds == 60.0
