import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cluster.cluster import Cluster
from stoker_operator.crd import custom_resource_definition
from stoker_operator.status_types import (
    Condition,
    DownloadStatus,
    InferenceDeploymentStatus,
    LastDrain,
    LastFailure,
    ModelStatus,
    StartupPhases,
    StartupStatus,
)
from stoker_operator.v1alpha1 import InferenceDeployment

ROOT = Path(__file__).parents[2]
SPECS = yaml.safe_load((ROOT / "tests" / "operator" / "specs.yaml").read_text())
TIME = "2026-01-02T03:04:05Z"
KILOBYTE = 1000

FULL_STATUS = InferenceDeploymentStatus(
    observed_generation=4,
    replicas=5,
    ready_replicas=3,
    updated_replicas=2,
    available_replicas=1,
    unavailable_replicas=4,
    selector="stoker.dev/inference-deployment=shown",
    url="http://shown.team.svc",
    model=ModelStatus(
        resolved_revision="0123abc",
        size_bytes=1 << 40,
        download=DownloadStatus(phase="Downloading", bytes=1 << 39, bytes_per_second=1 << 20, eta_seconds=9),
    ),
    startup=StartupStatus(last_duration_seconds=15.5, phases=StartupPhases(schedule=1.5, pull=2.5, download=3.5, load=4.5, warmup=3.5)),
    last_failure=LastFailure(time=TIME, pod="shown-1", container="engine", reason="OutOfMemory", exit_code=137, message="no memory"),
    last_drain=LastDrain(time=TIME, pod="shown-2", in_flight_at_start=3, completed=2, aborted=1, duration_seconds=0.5),
    conditions=(
        Condition(type="Available", status="True", reason="Enough", message="1 of 1", last_transition_time=TIME, observed_generation=4),
        Condition(type="Ready", status="False", reason="RollingOut", message="2 of 5", last_transition_time=TIME, observed_generation=4),
    ),
)


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    definition = custom_resource_definition()
    cluster.apply(definition)
    name = definition["metadata"]["name"]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{name}")


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, definition: None) -> Iterator[str]:
    with cluster.namespace("crd") as name:
        yield name


def inference_deployment(namespace: str, spec: dict[str, Any], name: str = "default-name") -> dict[str, Any]:
    spec = spec | {"model": {"uri": "file:///models/a"} | spec.get("model", {})}
    return {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def create(cluster: Cluster, folder: Path, manifest: dict[str, Any], *flags: str) -> str:
    file = folder / "manifest.json"
    file.write_text(json.dumps(manifest))
    return cluster.kubectl("create", "-f", str(file), *flags)


def refusal(cluster: Cluster, folder: Path, manifest: dict[str, Any]) -> str:
    with pytest.raises(RuntimeError) as caught:
        create(cluster, folder, manifest, "--dry-run=server")
    return str(caught.value)


@pytest.mark.case("C083")
@pytest.mark.parametrize("entry", [entry for entry in SPECS if "refused" in entry], ids=lambda entry: str(entry["spec"]))
def test_a_spec_that_cannot_work_is_refused_as_stoker_up_refuses_it(cluster: Cluster, namespace: str, tmp_path: Path, entry: dict[str, Any]) -> None:
    text = refusal(cluster, tmp_path, inference_deployment(namespace, entry["spec"]))
    field = entry["refused"]
    assert f"spec.{field}: " in text
    assert f"{field.split('.')[-1]} {entry['says']}" in text


def test_a_spec_that_can_work_is_accepted(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    accepted = [entry["spec"] for entry in SPECS if "refused" not in entry]
    items = [inference_deployment(namespace, spec, f"accepted-{index}") for index, spec in enumerate(accepted)]
    created = create(cluster, tmp_path, {"apiVersion": "v1", "kind": "List", "items": items}, "--dry-run=server")
    assert len(created.splitlines()) == len(accepted)


@pytest.mark.parametrize("sample", sorted((ROOT / "manifests" / "samples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_sample_is_accepted(cluster: Cluster, namespace: str, sample: Path) -> None:
    assert "created" in cluster.kubectl("create", "-f", str(sample), "-n", namespace, "--dry-run=server")


@pytest.mark.case("C085")
def test_a_name_that_no_child_could_have_is_refused_at_once(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    for name in ("a" * 63, "a" * 59 + "b", "model-v1.5", "b" * 253, "1st"):
        assert "metadata.name must have at most 52 characters" in refusal(cluster, tmp_path, inference_deployment(namespace, {}, name))
    create(cluster, tmp_path, inference_deployment(namespace, {}, "a" * 52), "--dry-run=server")


def test_an_unknown_field_is_refused_by_name(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    assert 'unknown field "spec.engine.maxModelLenn"' in refusal(cluster, tmp_path, inference_deployment(namespace, {"engine": {"maxModelLenn": 1}}))


def test_the_api_server_fills_what_stoker_up_fills(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    manifest = inference_deployment(namespace, {}, "filled")
    create(cluster, tmp_path, manifest)
    found = cluster.get("InferenceDeployment", "filled", namespace)
    assert set(found["spec"]) >= {"engine", "api", "cache", "lifecycle", "rollout", "podTemplate"}
    assert found["spec"]["rollout"] == {"strategy": "Auto", "minReadySeconds": 2, "revisionHistoryLimit": 3}
    assert msgspec.convert(manifest | {"spec": found["spec"]}, InferenceDeployment) == msgspec.convert(manifest, InferenceDeployment)


def test_null_for_no_disruption_budget_is_kept(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    create(cluster, tmp_path, inference_deployment(namespace, {"availability": {"maxUnavailable": None}}, "undisturbed"))
    assert cluster.get("InferenceDeployment", "undisturbed", namespace)["spec"]["availability"] == {"maxUnavailable": None}


def test_a_pods_own_fields_are_kept_as_they_are(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    template = {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a"]}], "terminationGracePeriodSeconds": 300}
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    spec = {"podTemplate": {"spec": template}, "engine": {"env": [{"name": "POD", "valueFrom": source}]}}
    create(cluster, tmp_path, inference_deployment(namespace, spec, "kept"))
    found = cluster.get("InferenceDeployment", "kept", namespace)["spec"]
    assert (found["podTemplate"]["spec"], found["engine"]["env"][0]["valueFrom"]) == (template, source)


def test_the_kind_of_cache_stays(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    create(cluster, tmp_path, inference_deployment(namespace, {}, "cached"))
    change = json.dumps({"spec": {"cache": {"type": "HostPath", "hostPath": "/models"}}})
    with pytest.raises(RuntimeError, match="type must stay as it is; delete the InferenceDeployment and create it anew"):
        cluster.kubectl("patch", "infdep", "cached", "-n", namespace, "--type=merge", "-p", change)


@pytest.mark.case("C089")
def test_every_field_of_the_status_reads_back(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    create(cluster, tmp_path, inference_deployment(namespace, {"replicas": 5, "accelerator": {"count": 2}}, "shown"))
    status = msgspec.to_builtins(FULL_STATUS)
    cluster.patch_status("InferenceDeployment", "shown", namespace, {"status": status})
    assert cluster.get("InferenceDeployment", "shown", namespace)["status"] == json.loads(json.dumps(status))
    assert set(status) == {field.encode_name for field in msgspec.structs.fields(InferenceDeploymentStatus)}


def test_kubectl_shows_a_deployments_columns_and_why_it_is_not_ready(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    manifest = inference_deployment(namespace, {"replicas": 5, "accelerator": {"count": 2}}, "listed")
    create(cluster, tmp_path, manifest)
    cluster.patch_status("InferenceDeployment", "listed", namespace, {"status": msgspec.to_builtins(FULL_STATUS)})
    header, row = (line.split() for line in cluster.kubectl("get", "infdep", "listed", "-n", namespace, "-o", "wide").splitlines())
    assert header == ["NAME", "READY", "DESIRED", "UP-TO-DATE", "AVAILABLE", "STATUS", "MODEL", "AGE", "URL", "REVISION", "GPU"]
    assert [*row[:7], *row[8:]] == ["listed", "3", "5", "2", "1", "RollingOut", "file:///models/a", "http://shown.team.svc", "0123abc", "2"]
    short, _ = (line.split() for line in cluster.kubectl("get", "infdep", "listed", "-n", namespace).splitlines())
    assert short == header[:8]
    assert "inferencedeployment.stoker.dev/listed" in cluster.kubectl("get", "all", "-n", namespace, "-o", "name")


def test_the_number_of_replicas_is_set_through_the_scale(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    create(cluster, tmp_path, inference_deployment(namespace, {}, "scaled"))
    cluster.kubectl("scale", "infdep", "scaled", "-n", namespace, "--replicas=3")
    assert cluster.get("InferenceDeployment", "scaled", namespace)["spec"]["replicas"] == 3


def test_kubectl_explains_each_field(cluster: Cluster) -> None:
    text = cluster.kubectl("explain", "infdep.spec.lifecycle")
    assert "drainTimeout" in text
    assert "How long requests in flight may go on after a request to stop" in " ".join(text.split())


def large(namespace: str, name: str, kilobytes: int) -> dict[str, Any]:
    values = [{"name": f"PART_{index}", "value": "x" * (20 * KILOBYTE)} for index in range(kilobytes // 20)]
    return inference_deployment(namespace, {"engine": {"env": values}}, name)


@pytest.mark.case("C088")
def test_a_large_object_is_kept_whole_and_a_large_value_is_refused(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    for kilobytes in (200, 300):
        manifest = large(namespace, f"large-{kilobytes}", kilobytes)
        cluster.apply(manifest)
        assert cluster.get("InferenceDeployment", f"large-{kilobytes}", namespace)["spec"]["engine"]["env"] == manifest["spec"]["engine"]["env"]
    whole = inference_deployment(namespace, {"engine": {"env": [{"name": "WHOLE", "value": "x" * (200 * KILOBYTE)}]}})
    assert "spec.engine.env[0].value: Too long: may not be more than 32768" in refusal(cluster, tmp_path, whole)


def test_client_side_apply_of_a_large_object_fails_on_its_own_annotation(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    file.write_text(json.dumps(large(namespace, "applied", 300)))
    with pytest.raises(RuntimeError, match=r"metadata\.annotations: Too long"):
        cluster.kubectl("apply", "-f", str(file))
