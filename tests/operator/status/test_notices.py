from typing import Any

import pytest

from stoker_operator.api_answers import Startup
from stoker_operator.pod_reports import PodReport
from stoker_operator.status.notices import notices
from stoker_operator.status.requeue import requeue_after
from stoker_operator.status_types import InferenceDeploymentStatus

POD = "smollm2-6f7c9d-aaaaa"


def told(scene: Any, step: Any) -> list[tuple[str, str]]:
    before = scene.status
    step()
    return [(notice.type, notice.reason) for notice in notices(before, scene.status)]


def test_a_change_of_ready_or_of_its_reason_is_told_once(world: Any) -> None:
    scene = world.scene()
    assert told(scene, lambda: scene.show(world.pod())) == [("Normal", "ModelLoading")]
    progress = {POD: PodReport(Startup("loading", 0.5))}
    assert told(scene, lambda: scene.show(world.pod(), reports=progress)) == []
    assert told(scene, lambda: scene.show(world.pod(ready=9))) == [("Normal", "AllReplicasReady")]
    assert told(scene, lambda: scene.show(world.crashed(1))) == [("Warning", "EngineCrashed"), ("Warning", "Failed")]
    assert told(scene, lambda: scene.show(world.crashed(1))) == []


@pytest.mark.case("C082")
def test_a_quota_is_told_once_however_often_pods_are_refused(world: Any) -> None:
    def refuse(pod: str) -> Any:
        message = f'pods "{pod}" is forbidden: exceeded quota: cpu'
        refused = world.deployment(total=0, updated=0, available=0, conditions=[world.condition("ReplicaFailure", "True", "FailedCreate", message)])
        return scene.show(deployment=refused)

    scene = world.scene()
    assert told(scene, lambda: refuse("a")) == [("Warning", "QuotaExceeded")]
    assert told(scene, lambda: refuse("b")) == []


def test_a_drain_is_told_once_and_warns_where_requests_were_cut(world: Any) -> None:
    def drained(**counts: int) -> Any:
        ended = world.terminated(0, "Completed", world.words("Drained", **counts), end=20 + len(counts))
        return scene.show(world.pod("old", deleted=5, api=world.container("api", ended)), world.pod(ready=9))

    scene = world.scene().show(world.pod(ready=9))
    assert told(scene, lambda: drained(completed=2)) == [("Normal", "Drained")]
    assert told(scene, lambda: drained(completed=2)) == []
    assert told(scene, lambda: drained(completed=2, aborted=1)) == [("Warning", "Drained")]


def test_an_event_says_no_more_than_the_api_server_takes(world: Any) -> None:
    scene = world.scene().show(world.crashed(1, "x" * 4000))
    assert all(len(notice.message) <= 1024 for notice in notices(InferenceDeploymentStatus(), scene.status))


def test_only_a_pod_whose_programs_run_and_which_is_not_ready_is_looked_at_again(world: Any) -> None:
    pending = world.pod("b", status={"podIP": "", "initContainerStatuses": [], "containerStatuses": []})
    assert requeue_after(world.scene().show(world.pod(ready=9), pending, world.pod("c", deleted=3), world.crashed(1)).observed) is None
    assert requeue_after(world.scene().show(world.pod(ready=9), world.pod("b")).observed) == 5.0
