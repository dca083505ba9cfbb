from datetime import UTC, datetime
from typing import Any

import pytest

from stoker_operator.api_answers import Readiness
from stoker_operator.observed import PodWarning
from stoker_operator.pod_reports import PodReport
from stoker_operator.status.text import MAX_MESSAGE_BYTES

POD = "smollm2-6f7c9d-aaaaa"
HUNG = PodReport(readiness=Readiness("not ready", "hung", "the engine is hung: its step has been running for 61 s"))
NOW = datetime(2026, 12, 31, tzinfo=UTC)


def unhealthy(world: Any, time: float) -> PodWarning:
    return PodWarning("Unhealthy", 'Liveness probe failed: Get "http://10.0.0.7:8001/livez": context deadline exceeded', datetime.fromisoformat(world.at(time)))


def own(world: Any, reason: str, last_error: str) -> str:
    return world.words(reason, lastError=last_error)


ENDS = [
    ("engine", 4, ("ModelLoadFailed", "tensor blk.0 is truncated"), "EngineCrashed"),
    ("engine", 2, ("BadConfig", "--dtype: Expected one of auto, got 'int3'"), "EngineCrashed"),
    ("engine", 3, ("StartupTimeout", "not ready after 30m (startupTimeout): in phase loading (40%)"), "StartupTimeout"),
    ("engine", 70, ("EngineHung", "a step has been running for 61 s, longer than 60s (engineHangTimeout)"), "EngineHung"),
    ("engine", 70, ("ThreadFailed", "thread input: ValueError: x"), "EngineCrashed"),
    ("engine", 0, ("Drained", ""), "EngineCrashed"),
    ("engine", 3, None, "StartupTimeout"),
    ("engine", 70, None, "EngineHung"),
    ("engine", 139, None, "EngineCrashed"),
    ("engine", 137, None, "EngineCrashed"),
    ("api", 1, ("Failed", "OSError: address already in use"), "ApiCrashed"),
    ("api", 70, None, "ApiCrashed"),
    ("api", 0, ("Drained", ""), "ApiCrashed"),
]


@pytest.mark.parametrize(("name", "exit_code", "said", "reason"), ENDS)
def test_an_end_is_told_with_the_programs_own_words(world: Any, name: str, exit_code: int, said: tuple[str, str] | None, reason: str) -> None:
    scene = world.scene().show(world.crashed(exit_code, "" if said is None else own(world, *said), name=name))
    assert scene.brief() == ("False", reason)
    own_reason, last_error = said or ("Error", "")
    text = f"Pod {POD}: container {name} ended with exit code {exit_code} ({own_reason})" + (f": {last_error}" if last_error else "") + " (restart 1)"
    assert scene.condition("Ready").message == text
    failure = scene.status.last_failure
    assert (failure.pod, failure.container, failure.exit_code, failure.message, failure.time) == (POD, name, exit_code, last_error, world.at(20))
    assert failure.reason == ("EngineHung" if (said, reason) == (None, "EngineHung") else own_reason)


def test_the_kernels_kill_comes_before_what_the_program_said(world: Any) -> None:
    scene = world.scene().show(world.crashed(137, own(world, "Drained", ""), reason="OOMKilled"))
    assert scene.brief() == ("False", "OOMKilled") and scene.status.last_failure.reason == "OOMKilled"


def test_a_program_that_left_no_words_is_told_by_the_last_line_of_its_log(world: Any) -> None:
    log = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'torch'\n\n"
    scene = world.scene().show(world.crashed(1, log))
    assert scene.status.last_failure.message == "ModuleNotFoundError: No module named 'torch'"


def test_a_hung_engine_is_told_while_it_hangs_and_after_the_kubelet_killed_it(world: Any) -> None:
    scene = world.scene().show(world.pod(), reports={POD: HUNG})
    assert scene.brief() == ("False", "EngineHung") and "its step has been running for 61 s" in scene.condition("Ready").message
    scene.show(world.crashed(137))
    assert scene.brief() == ("False", "EngineHung") and scene.status.last_failure.reason == "EngineHung"
    scene.show(world.pod(engine=world.container("engine", last=world.terminated(137), since=22)))
    assert scene.brief() == ("False", "EngineHung"), "until it serves again"
    scene.show(world.pod(engine=world.container("engine", last=world.terminated(137), since=22), ready=29))
    assert scene.brief() == ("True", "AllReplicasReady") and scene.status.last_failure.reason == "EngineHung"


def test_a_kill_after_a_failed_liveness_probe_is_a_hang(world: Any) -> None:
    assert world.scene().show(world.crashed(137), warnings={POD: unhealthy(world, 18)}).brief() == ("False", "EngineHung")


def test_a_kill_after_a_failed_liveness_probe_is_a_hang_even_if_the_engine_serves_again(world: Any) -> None:
    back = world.pod(engine=world.container("engine", last=world.terminated(137), since=22), ready=29)
    scene = world.scene().show(back, warnings={POD: unhealthy(world, 18)})
    assert scene.brief() == ("True", "AllReplicasReady") and scene.status.last_failure.reason == "EngineHung"
    assert scene.show(back).status.last_failure.reason == "EngineHung"


def test_an_earlier_life_of_the_engine_that_hung_explains_no_kill(world: Any) -> None:
    assert world.scene().show(world.crashed(137), warnings={POD: unhealthy(world, 14)}).brief() == ("False", "EngineCrashed")
    scene = world.scene().show(world.crashed(137), warnings={POD: unhealthy(world, 18)})
    scene.show(world.pod(engine=world.container("engine", last=world.terminated(137), since=22), ready=29))
    again = world.container("engine", world.waiting("CrashLoopBackOff"), world.terminated(137, end=600), ready="no")
    assert scene.show(world.pod(engine=again)).brief() == ("False", "EngineCrashed") and scene.status.last_failure.reason == "Error"


def test_another_pods_hang_explains_no_kill(world: Any) -> None:
    scene = world.scene(replicas=2).show(world.pod(), world.pod("b", ready=5), reports={POD: HUNG})
    killed = world.crashed(137)
    killed["metadata"]["name"] = "b"
    assert scene.show(killed, world.pod(ready=40)).brief() == ("False", "EngineCrashed")


def test_a_volume_of_a_missing_secret_is_told_by_its_event(world: Any) -> None:
    waiting = [world.container(name, world.waiting(why), ready="no") for name, why in (("engine", "PodInitializing"), ("api", "PodInitializing"))]
    event = PodWarning("FailedMount", 'MountVolume.SetUp failed for volume "token" : secret "hub-token" not found', NOW)
    scene = world.scene().show(world.pod(engine=waiting[0], api=waiting[1]), warnings={POD: event})
    assert scene.brief() == ("False", "MissingReference") and 'secret "hub-token" not found' in scene.condition("Ready").message


@pytest.mark.parametrize(
    ("event", "reason", "words"),
    [
        (("Failed", 'Error: secret "hub-token" not found'), "MissingReference", 'secret "hub-token" not found'),
        (("Failed", "Error: ErrImageNeverPull"), "ImagePullFailed", "ErrImageNeverPull"),
        (("ErrImageNeverPull", 'Container image "x" is not present with pull policy of Never'), "ImagePullFailed", 'image "x" is not present'),
        (("Failed", 'Failed to pull image "x": not found'), "ImagePullFailed", 'Failed to pull image "x": not found'),
        (("Failed", "Error: context deadline exceeded"), "RollingOut", "0 of 1 replicas"),
    ],
)
def test_what_holds_up_containers_is_told_by_an_event_before_their_status_has_it(world: Any, event: tuple[str, str], reason: str, words: str) -> None:
    waiting = {name: world.container(name, world.waiting("PodInitializing"), ready="no") for name in ("engine", "api")}
    scene = world.scene().show(world.pod(**waiting), warnings={POD: PodWarning(*event, NOW)})
    assert scene.brief() == ("False", reason) and words in scene.condition("Ready").message
    assert world.scene().show(world.pod(), warnings={POD: PodWarning(*event, NOW)}).brief() == ("False", "ModelLoading"), "once they run, it is over"


def test_an_old_end_does_not_explain_what_came_after_the_recovery(world: Any) -> None:
    restarted = world.container("engine", last=world.terminated(1, end=20), since=21)
    assert world.scene().show(world.pod(engine=restarted, since=22)).brief()[1] == "EngineCrashed"
    assert world.scene().show(world.pod(engine=restarted, since=600)).brief()[1] == "ModelLoading"


def test_a_preparing_container_may_end_with_0_and_not_otherwise(world: Any) -> None:
    def show(exit_code: int) -> Any:
        prepared = world.container("fetch", world.terminated(exit_code, "Completed" if exit_code == 0 else "Error"))
        pod = world.pod()
        pod["status"]["initContainerStatuses"].insert(0, prepared)
        return world.scene().show(pod)

    assert show(0).brief() == ("False", "ModelLoading") and show(0).status.last_failure is None
    assert show(1).brief() == ("False", "EngineCrashed") and show(1).status.last_failure.container == "fetch"


def test_the_most_telling_of_several_failures_comes_first(world: Any) -> None:
    killed = world.crashed(137, reason="OOMKilled")
    killed["metadata"]["name"] = "z"
    scene = world.scene(replicas=2).show(world.crashed(1), killed)
    assert scene.brief() == ("False", "OOMKilled") and scene.condition("Ready").message.startswith("2 pods fail. Pod z: ")


def test_the_last_failure_stays_until_a_newer_one(world: Any) -> None:
    scene = world.scene().show(world.crashed(1, own(world, "EngineFailed", "first")))
    first = scene.status.last_failure
    assert scene.show(world.pod("new", ready=40)).status.last_failure == first
    later = world.pod("new", engine=world.container("engine", last=world.terminated(4, end=60)))
    assert scene.show(later).status.last_failure.time == world.at(60)


def test_the_ends_of_a_deleted_pod_are_no_failures(world: Any) -> None:
    stopped = world.pod(deleted=15, engine=world.container("engine", world.terminated(137)), api=world.container("api", world.terminated(137)))
    assert world.scene().show(stopped, world.pod("new", ready=9)).status.last_failure is None


def test_an_evicted_pod_is_no_replica_and_its_eviction_is_told(world: Any) -> None:
    evicted = world.crashed(137)
    evicted["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    scene = world.scene().show(evicted, world.pod("new", ready=9), deployment=world.deployment(total=1, updated=1, available=1))
    assert scene.brief() == ("True", "AllReplicasReady")
    assert (scene.status.last_failure.reason, scene.status.last_failure.message) == ("Evicted", "The node was low on resource: memory.")


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "\x00\x1b[31m" * 900, "\u2028" * 3000])
def test_words_of_any_length_and_kind_fit_the_status(world: Any, text: str) -> None:
    for message in (text, own(world, "EngineFailed", text)):
        scene = world.scene().show(world.crashed(1, message))
        for told in (scene.condition("Ready").message, scene.status.last_failure.message):
            assert len(told.encode()) <= MAX_MESSAGE_BYTES and (told.isprintable() or not told)
