from typing import Any

import pytest

from stoker_operator.api_answers import Readiness, Startup
from stoker_operator.pod_reports import PodReport

POD = "smollm2-6f7c9d-aaaaa"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = {"uri": "hf://org/name"}


def downloading(message: str = "", phase: str = "downloading") -> dict[str, PodReport]:
    return {POD: PodReport(Startup(phase, 0.3, message=message, revision=COMMIT, size_bytes=1000, bytes=370, bytes_per_second=100, eta_seconds=7))}


def test_a_model_that_is_there_has_no_download(world: Any) -> None:
    scene = world.scene().show(world.pod(ready=9))
    assert scene.status.model is None and "ModelCached" not in {each.type for each in scene.status.conditions}


def test_a_download_is_told_with_its_rate_and_what_is_left(world: Any) -> None:
    scene = world.scene(model=HUB).show(world.pod(), reports=downloading())
    model = scene.status.model
    assert (model.resolved_revision, model.size_bytes) == (COMMIT, 1000)
    assert (model.download.phase, model.download.bytes, model.download.bytes_per_second, model.download.eta_seconds) == ("Downloading", 370, 100, 7)
    assert scene.brief("ModelCached") == ("False", "Downloading") and scene.condition("ModelCached").message == "30 % are there."
    assert scene.brief() == ("False", "ModelLoading")


def test_a_rate_limit_is_told_apart(world: Any) -> None:
    scene = world.scene(model=HUB).show(world.pod(), reports=downloading("the hub limits the rate of requests (429): waiting 30 s"))
    assert scene.brief("ModelCached") == ("False", "RateLimited") and "waiting 30 s" in scene.condition("ModelCached").message


def test_the_files_are_there_once_a_replica_loads_them(world: Any) -> None:
    scene = world.scene(model=HUB).show(world.pod(), reports=downloading(phase="loading"))
    assert scene.brief("ModelCached") == ("True", "Cached") and scene.status.model.download.phase == "Downloaded"
    scene.show(world.pod(ready=9))
    assert (scene.status.model.resolved_revision, scene.status.model.download.bytes) == (COMMIT, 370)


@pytest.mark.parametrize("reason", ["AuthRequired", "DiskFull", "DownloadFailed"])
@pytest.mark.parametrize("name", ["engine", "api"])
def test_a_download_that_failed_is_told_in_the_programs_words(world: Any, reason: str, name: str) -> None:
    scene = world.scene(model=HUB).show(world.crashed(4, world.words(reason, lastError="model.uri: why"), name=name))
    assert scene.brief("ModelCached") == ("False", reason) and scene.condition("ModelCached").message == f"Pod {POD}: model.uri: why"
    assert scene.status.model.download.phase == "Failed" and scene.status.last_failure.reason == reason


def test_before_a_pod_tells_anything_nothing_is_known(world: Any) -> None:
    scene = world.scene(model={**HUB, "revision": COMMIT}).show(world.pod())
    assert scene.brief("ModelCached") == ("Unknown", "Downloading") and scene.status.model.resolved_revision == COMMIT


def connected(engine: str) -> dict[str, PodReport]:
    return {POD: PodReport(readiness=Readiness("not ready", engine, "x"))}


def test_engines_are_connected_as_their_apis_say(world: Any) -> None:
    scene = world.scene(replicas=2).show(world.pod("a", ready=9), world.pod(), reports=connected("loading"))
    assert scene.brief("EngineConnected") == ("False", "Handshaking") and scene.condition("EngineConnected").message.startswith("1 of 2 engines")
    assert scene.observe(reports=connected("sleeping")).brief("EngineConnected") == ("True", "EnginesConnected")


def test_an_engine_of_another_protocol_is_told(world: Any) -> None:
    refused = PodReport(Startup("failed", message="protocol 9, the api speaks 3"))
    scene = world.scene().show(world.pod(), reports={POD: refused})
    assert scene.brief("EngineConnected") == ("False", "ProtocolMismatch") and "protocol 9, the api speaks 3" in scene.condition("EngineConnected").message


def test_an_engine_that_started_too_slowly_is_not_connected(world: Any) -> None:
    assert world.scene().show(world.crashed(3)).brief("EngineConnected") == ("False", "StartupTimeout")
