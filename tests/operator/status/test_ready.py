from collections.abc import Callable
from typing import Any

import pytest

from stoker_operator.api_answers import Readiness, Startup
from stoker_operator.observed import ApplyProblem, Rendering
from stoker_operator.pod_reports import PodReport
from stoker_operator.status.pod_failure import IMAGE_REASONS

POD = "smollm2-6f7c9d-aaaaa"
LOADING = PodReport(Startup("loading", progress=0.47), Readiness("not ready", "loading", "the engine is loading"))


def test_ready_when_every_replica_is_updated_and_available(world: Any) -> None:
    scene = world.scene(replicas=2).show(world.pod("a", ready=9), world.pod("b", ready=12))
    assert scene.brief() == ("True", "AllReplicasReady")
    assert scene.condition("Ready").message == "2 of 2 replicas are ready."


@pytest.mark.case("C081")
def test_every_generation_stands_for_that_of_the_inference_deployment(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9), generation=4)
    assert scene.status.observed_generation == 4 and {each.observed_generation for each in scene.status.conditions} == {4}


@pytest.mark.case("C081")
@pytest.mark.parametrize(
    "stale",
    [
        lambda world: {"rendering": Rendering.OUTDATED},
        lambda world: {"deployment": world.deployment(total=1, updated=1, available=1, generation=7, observed=6)},
        lambda world: {"deployment": None},
    ],
    ids=["not applied yet", "not seen by its controller", "gone"],
)
def test_old_pods_that_serve_make_no_new_generation_ready(world: Any, stale: Callable[[Any], dict[str, Any]]) -> None:
    scene = world.scene().show(world.pod(ready=9))
    assert scene.brief() == ("True", "AllReplicasReady")
    scene.observe(generation=4, **stale(world))
    assert scene.brief() == ("False", "RollingOut") and scene.status.updated_replicas == 0


def test_a_replica_of_the_old_template_holds_back_ready_until_it_goes(world: Any) -> None:
    old, new = world.pod("old", template=world.OLD, ready=1), world.pod("new", ready=9)
    scene = world.scene().show(old, new)
    assert scene.brief() == ("False", "RollingOut")
    draining = world.pod("old", template=world.OLD, ready=1, deleted=20)
    assert scene.show(draining, new).brief() == ("True", "AllReplicasReady")


def test_a_pod_lost_before_its_deployment_counts_it_so_is_not_ready(world: Any) -> None:
    counted = world.deployment(total=1, updated=1, available=1)
    assert world.scene().show(world.pod(), deployment=counted).brief() == ("False", "ModelLoading")


def test_an_available_pod_may_not_be_available_for_long_enough(world: Any) -> None:
    counted = world.deployment(total=1, updated=1, available=0)
    assert world.scene().show(world.pod(ready=9), deployment=counted).brief() == ("False", "RollingOut")


def test_no_replicas_wanted_and_none_left_is_scaled_to_zero(world: Any) -> None:
    scene = world.scene(replicas=0)
    assert scene.show(world.pod(ready=9)).brief() == ("False", "RollingOut")
    assert scene.show().brief() == ("True", "ScaledToZero")
    assert scene.brief("EngineConnected") == scene.brief("Available") == ("True", "ScaledToZero")
    assert scene.brief("Degraded") == ("False", "ScaledToZero")


def test_a_loading_model_is_told_with_its_progress_in_tenths(world: Any) -> None:
    scene = world.scene().show(world.pod(), reports={POD: LOADING})
    assert scene.brief() == ("False", "ModelLoading")
    assert scene.condition("Ready").message == f"0 of 1 replicas are available, 1 are updated; pod {POD}: loading (40 %)."


def test_a_model_that_loads_while_old_replicas_serve_is_a_rollout(world: Any) -> None:
    scene = world.scene().show(world.pod("old", template=world.OLD, ready=1), world.pod(), reports={POD: LOADING})
    assert scene.brief() == ("False", "RollingOut")
    assert "1 are of an earlier pod template; pod smollm2-6f7c9d-aaaaa: loading (40 %)" in scene.condition("Ready").message


def test_a_paused_rollout_says_so_and_a_paused_complete_one_is_ready(world: Any) -> None:
    scene = world.scene(paused=True)
    held = world.deployment(total=1, updated=0, available=1, paused=True)
    assert scene.show(world.pod(ready=9), deployment=held).brief() == ("False", "Paused")
    complete = world.deployment(total=1, updated=1, available=1, paused=True)
    assert scene.show(world.pod(ready=9), deployment=complete).brief() == ("True", "AllReplicasReady")


def test_one_crashing_replica_is_told_while_others_serve(world: Any) -> None:
    scene = world.scene(replicas=3).show(world.pod("a", ready=9), world.pod("b", ready=9), world.crashed(1))
    assert scene.brief() == ("False", "EngineCrashed") and POD in scene.condition("Ready").message
    assert scene.brief("Degraded") == ("True", "EngineCrashed")
    assert scene.show(world.pod("a", ready=9), world.pod("b", ready=9), world.pod(ready=29)).brief() == ("True", "AllReplicasReady")


def test_a_broken_old_replica_is_not_what_the_new_template_waits_for(world: Any) -> None:
    broken = world.crashed(1)
    broken["metadata"]["labels"]["pod-template-hash"] = world.OLD
    scene = world.scene().show(broken, world.pod("new"))
    assert scene.brief() == ("False", "RollingOut")
    assert scene.status.last_failure is not None and scene.status.last_failure.exit_code == 1


QUOTA = 'pods "smollm2-6f7c9d-x" is forbidden: exceeded quota: cpu, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1'
SECURITY = 'pods "smollm2-6f7c9d-x" is forbidden: violates PodSecurity "restricted:latest": privileged (container "api" must not set it)'


@pytest.mark.case("C082")
@pytest.mark.parametrize(("message", "reason"), [(QUOTA, "QuotaExceeded"), (SECURITY, "AdmissionRejected")])
def test_pods_that_the_api_server_refuses_are_told_word_for_word(world: Any, message: str, reason: str) -> None:
    refusal = world.condition("ReplicaFailure", "True", "FailedCreate", message)
    scene = world.scene(replicas=2).show(deployment=world.deployment(total=0, updated=0, available=0, conditions=[refusal]))
    assert scene.brief() == ("False", reason) and scene.condition("Ready").message == message
    assert scene.brief("SpecAccepted") == ("False", reason) and scene.condition("SpecAccepted").message == message
    assert scene.brief("Available") == ("False", reason) and message in scene.condition("Available").message
    assert scene.show(world.pod("a", ready=9), world.pod("b", ready=9)).brief("SpecAccepted") == ("True", "Accepted")


@pytest.mark.parametrize(
    ("problem", "ready", "accepted"),
    [
        (("Service", "NameConflict", "Service smollm2 belongs to somebody else"), "AdmissionRejected", "NameConflict"),
        (("Deployment", "Invalid", "spec.template.spec.containers[0].image: Required value"), "InvalidSpec", "InvalidSpec"),
        (("Deployment", "Forbidden", "admission webhook denied the request"), "AdmissionRejected", "AdmissionRejected"),
        (("Deployment", "Forbidden", "exceeded quota: objects, requested: count/deployments.apps=1"), "QuotaExceeded", "QuotaExceeded"),
    ],
)
def test_a_child_that_was_not_taken_leaves_what_serves_alone(world: Any, problem: tuple[str, str, str], ready: str, accepted: str) -> None:
    kind, reason, message = problem
    scene = world.scene().show(world.pod(ready=9), problems=(ApplyProblem(kind, "smollm2", reason, message),), rendering=Rendering.OUTDATED)
    assert scene.brief() == ("False", ready) and scene.brief("SpecAccepted") == ("False", accepted)
    assert scene.condition("SpecAccepted").message == message
    assert scene.brief("Available") == ("True", "MinimumReplicasAvailable") and scene.brief("Progressing")[0] == "False"


def test_an_inference_deployment_that_cannot_be_read_keeps_its_address(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9))
    before, scene.wanted = scene.status, None
    scene.observe(decode_error="spec.replicas: Expected `int`, got 'two'", generation=5)
    assert scene.brief() == scene.brief("SpecAccepted") == ("False", "InvalidSpec")
    assert (scene.status.url, scene.status.selector) == (before.url, before.selector)


SCHEDULING = "0/3 nodes are available: {}. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (SCHEDULING.format("1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint(s)"), "InsufficientAccelerators"),
        (SCHEDULING.format("3 Insufficient cpu"), "Unschedulable"),
        ('0/3 nodes are available: persistentvolumeclaim "models" not found.', "MissingReference"),
        ("Scheduling is blocked due to non-empty scheduling gates", "Unschedulable"),
    ],
)
def test_a_pod_without_a_node_is_told_in_the_schedulers_words(world: Any, message: str, reason: str) -> None:
    pending = world.pod(phase="Pending", conditions=[world.condition("PodScheduled", "False", "Unschedulable", message)])
    pending["status"] |= {"initContainerStatuses": [], "containerStatuses": [], "podIP": ""}
    scene = world.scene(accelerator={"count": 1}).show(pending)
    assert scene.brief() == ("False", reason) and scene.condition("Ready").message == f"Pod {POD}: {message}"


def test_an_accelerator_of_another_name_is_told_as_well(world: Any) -> None:
    pending = world.pod(conditions=[world.condition("PodScheduled", "False", "Unschedulable", SCHEDULING.format("3 Insufficient amd.com/gpu"))])
    assert world.scene(accelerator={"count": 1, "resourceName": "amd.com/gpu"}).show(pending).brief()[1] == "InsufficientAccelerators"


@pytest.mark.parametrize("reason", sorted(IMAGE_REASONS))
def test_an_image_that_is_not_there_is_told_with_the_kubelets_words(world: Any, reason: str) -> None:
    message = 'Container image "localhost/none:1" is not present with pull policy of Never'
    scene = world.scene().show(world.pod(engine=world.container("engine", world.waiting(reason, message), ready="no")))
    assert scene.brief() == ("False", "ImagePullFailed")
    assert scene.condition("Ready").message == f"Pod {POD}: container engine: {reason}: {message}"


@pytest.mark.parametrize(("name", "crash"), [("api", "ApiCrashed"), ("engine", "EngineCrashed")])
def test_a_reference_to_nothing_is_told_apart_from_a_container_that_cannot_be_made(world: Any, name: str, crash: str) -> None:
    def show(reason: str, message: str) -> tuple[str, str]:
        return world.scene().show(world.pod(**{name: world.container(name, world.waiting(reason, message), ready="no")})).brief()

    assert show("CreateContainerConfigError", 'secret "hub-token" not found') == ("False", "MissingReference")
    assert show("CreateContainerConfigError", "couldn't find key token in Secret team/hub-token") == ("False", "MissingReference")
    assert show("CreateContainerConfigError", "container has runAsNonRoot and image will run as root") == ("False", crash)
    assert show("RunContainerError", 'exec: "stoker": executable file not found in $PATH') == ("False", crash)
    assert show("CreateContainerError", "context deadline exceeded") == ("False", crash)
