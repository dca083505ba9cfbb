"""What anybody with a few rights in a namespace may put there, and must cost nobody else."""

from pathlib import Path

from cluster.cluster import Cluster
from operated import Operated, operated

SECONDS = 30.0

DEEP = """{"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": "deep"},
"spec": {"model": {"uri": "file:///m"}, "replicas": 0, "podTemplate": {"spec": {"x": %s}}}}"""
DEPTH = 9900
"""The API server takes at most 10,000."""


def _post(cluster: Cluster, namespace: str, body: Path) -> None:
    cluster.kubectl("create", "--raw", f"/apis/stoker.dev/v1alpha1/namespaces/{namespace}/inferencedeployments", "-f", str(body))


def _told(operation: Operated, name: str) -> str:
    """Without a Python that would have to read all of it."""
    query = '-o=jsonpath={.status.conditions[?(@.type=="SpecAccepted")].message}'
    return operation.cluster.kubectl("get", "infdep", name, f"--namespace={operation.namespace}", query)


def test_an_object_nested_as_deep_as_can_be_is_refused_and_the_others_are_looked_after(cluster: Cluster, tmp_path: Path):
    deep = tmp_path / "deep.json"
    deep.write_text(DEEP % ('{"a":' * DEPTH + "1" + "}" * DEPTH))
    with operated(cluster, "hostile", tmp_path) as operation:
        with operation.operator("watching"):
            other = operation.apply("other")
            cluster.wait_until(lambda: other.is_ready, SECONDS, "other is Ready")
            _post(cluster, operation.namespace, deep)
            cluster.wait_until(lambda: "nested more than 64 deep" in _told(operation, "deep"), SECONDS, "deep is told why")
        with operation.operator("listing"):
            other.patch(engine={"maxModelLen": 77})
            cluster.wait_until(lambda: other.is_ready, SECONDS, "other is Ready again")


def test_a_lease_that_a_stranger_filled_with_nonsense_is_taken_when_it_is_old(cluster: Cluster, tmp_path: Path):
    nonsense = {"holderIdentity": "stranger", "leaseDurationSeconds": 2**31 - 1, "leaseTransitions": 2**31 - 1, "renewTime": "9999-12-31T23:59:59.000000Z"}
    with operated(cluster, "hostile", tmp_path) as operation:
        metadata = {"name": "stoker-operator", "namespace": operation.namespace}
        cluster.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": nonsense})
        with operation.operator("waiting") as process:
            cluster.wait_until(lambda: "Holding the Lease" in process.log.read_text(), SECONDS, "the operator leads")
            other = operation.apply("other")
            cluster.wait_until(lambda: other.is_ready, SECONDS, "other is Ready")
