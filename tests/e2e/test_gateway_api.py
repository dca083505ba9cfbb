"""The Gateway API's objects on a real API server, where a test installs the published definitions and takes them away."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.cluster import Cluster
from deployed import Deployed, condition_of
from operated import Operated

DEFINITIONS = Path(__file__).parents[1] / "operator" / "gateway_api"
KINDS = ("HTTPRoute", "InferencePool")
SECONDS = 60.0
WANTED: dict[str, Any] = {
    "httpRoute": {"parentRefs": [{"name": "public"}], "hostnames": ["chat.example.org"], "modelHeader": "X-Model", "backend": "InferencePool"},
    "inferencePool": {"endpointPickerRef": {"name": "picker"}},
}


@contextmanager
def definitions(cluster: Cluster) -> Iterator[None]:
    manifests = [yaml.safe_load(file.read_text()) for file in sorted(DEFINITIONS.glob("*.yaml"))]
    names = [manifest["metadata"]["name"] for manifest in manifests]
    if any(cluster.find("CustomResourceDefinition", name) for name in names):
        pytest.skip("this cluster has the definitions already, which are somebody else's")
    cluster.apply(*manifests)
    try:
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))
        yield
    finally:
        for name in names:
            cluster.delete("CustomResourceDefinition", name)
        cluster.wait_until(lambda: not any(cluster.find("CustomResourceDefinition", name) for name in names), SECONDS, "the definitions are gone")


def reason(model: Deployed) -> str:
    return str(condition_of(model.get(), "SpecAccepted").get("reason"))


def test_what_a_spec_asks_for_comes_with_its_definition_and_goes_with_it(cluster: Cluster, place: Operated) -> None:
    with place.operator("operator", "--resync=1s") as operator:
        model = place.apply("alpha", gatewayApi=WANTED)
        model.wait_ready()
        assert reason(model) == "UnknownKind"
        with definitions(cluster):
            cluster.wait_until(lambda: reason(model) == "Accepted", SECONDS, "both were made")
            uid = model.get()["metadata"]["uid"]
            owners = [cluster.get(kind, "alpha", place.namespace)["metadata"]["ownerReferences"] for kind in KINDS]
            assert [[owner["uid"] for owner in each] for each in owners] == [[uid], [uid]]
            since, looked = datetime.now(UTC), operator.num_reconciled
            cluster.wait_until(lambda: operator.num_reconciled >= looked + 3, SECONDS, "it was looked at three times more")
            assert [write for write in cluster.audit_writes(since, place.account.user) if write.resource != "leases"] == []
            model.patch(gatewayApi={"httpRoute": None})
            cluster.wait_until(lambda: cluster.find("HTTPRoute", "alpha", place.namespace) is None, SECONDS, "the route is gone")
            assert cluster.find("InferencePool", "alpha", place.namespace)
        cluster.wait_until(lambda: reason(model) == "UnknownKind", SECONDS, "the definitions are missed")
        assert model.is_ready
        assert operator.exit_code() is None


def test_an_operator_that_finds_the_definitions_repairs_what_somebody_changes(cluster: Cluster, place: Operated) -> None:
    with definitions(cluster), place.operator("operator"):
        model = place.apply("alpha", gatewayApi=WANTED)
        model.wait_ready()
        assert reason(model) == "Accepted"
        cluster.patch("HTTPRoute", "alpha", place.namespace, {"spec": {"hostnames": ["elsewhere.example.org"]}})
        cluster.patch("InferencePool", "alpha", place.namespace, {"spec": {"targetPorts": [{"number": 1}]}})
        repaired = {"hostnames": WANTED["httpRoute"]["hostnames"], "targetPorts": [{"number": 8000}]}

        def is_repaired() -> bool:
            route, pool = (cluster.get(kind, "alpha", place.namespace)["spec"] for kind in KINDS)
            return {"hostnames": route["hostnames"], "targetPorts": pool["targetPorts"]} == repaired

        cluster.wait_until(is_repaired, SECONDS, "both are as the spec says")
