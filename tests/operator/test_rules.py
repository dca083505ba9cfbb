from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stoker_operator.errors import ManifestError
from stoker_operator.manifest import decode_manifests
from stoker_operator.rules import RULES
from stoker_operator.v1alpha1 import InferenceDeployment

SPECS = yaml.safe_load((Path(__file__).parent / "specs.yaml").read_text())
WITHOUT_A_SPEC = {"metadata.name", "spec.cache.type"}
"""Rules on the name, which a spec has not, and on a change, which a file is not."""


def with_model(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"model": {"uri": "file:///models/a"} | spec.get("model", {})}


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": "default-name"}, "spec": with_model(spec)}


def decode(folder: Path, spec: dict[str, Any]) -> InferenceDeployment:
    file = folder / "a.yaml"
    file.write_text(yaml.safe_dump(manifest(spec)))
    return decode_manifests([str(file)])[0]


@pytest.mark.case("C083")
@pytest.mark.parametrize("entry", [entry for entry in SPECS if "refused" in entry], ids=lambda entry: str(entry["spec"]))
def test_a_spec_that_cannot_work_is_refused_by_field(tmp_path: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(ManifestError) as caught:
        decode(tmp_path, entry["spec"])
    assert f": $.spec.{entry['refused']}: {entry['says']}" in str(caught.value)


@pytest.mark.parametrize("entry", [entry for entry in SPECS if "refused" not in entry], ids=lambda entry: str(entry["spec"]))
def test_a_spec_that_can_work_is_accepted_and_survives_the_file(tmp_path: Path, entry: dict[str, Any]) -> None:
    deployment = decode(tmp_path, entry["spec"])
    assert msgspec.convert(msgspec.to_builtins(deployment), InferenceDeployment) == deployment


def test_every_rule_has_a_spec_that_it_refuses() -> None:
    shown = {(f"spec.{entry['refused']}", entry["says"]) for entry in SPECS if "refused" in entry}
    unshown = [rule.path for rule in RULES if not any(".".join(rule.path) == path and rule.message.startswith(says) for path, says in shown)]
    assert {".".join(path) for path in unshown} == WITHOUT_A_SPEC


def test_null_makes_no_pod_disruption_budget() -> None:
    deployment = msgspec.convert(manifest({"availability": {"maxUnavailable": None}}), InferenceDeployment)
    assert deployment.spec.availability.max_unavailable is None


@pytest.mark.parametrize("quantity", ["-1", "1gb", "", "1 Gi", "0x1", "1Gi\n"])
def test_what_is_no_quantity_is_refused(tmp_path: Path, quantity: str) -> None:
    with pytest.raises(ManifestError, match=r"spec\.engine\.resources\.limits"):
        decode(tmp_path, {"engine": {"resources": {"limits": {"memory": quantity}}}})
