"""One InferenceDeployment of a test: what it is made of, and what the API server says of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubernetes.dynamic.exceptions import NotFoundError

from cluster.cluster import Cluster, Manifest, Manifests

KIND = "InferenceDeployment"
LABEL = "stoker.dev/inference-deployment"
START_SECONDS = 120.0
"""For replicas to become ready on a machine that is busy with other things."""


class Deployed:
    def __init__(self, cluster: Cluster, name: str, namespace: str) -> None:
        self._cluster = cluster
        self.name = name
        self.namespace = namespace

    def get(self) -> Manifest:
        return self._cluster.get(KIND, self.name, self.namespace)

    @property
    def status(self) -> Manifest:
        status: Manifest = self.get().get("status", {})
        return status

    @property
    def is_ready(self) -> bool:
        """As `kubectl wait` sees it, of this generation."""
        found = self.get()
        condition = condition_of(found, "Ready")
        return condition.get("status") == "True" and condition.get("observedGeneration") == found["metadata"]["generation"]

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        self._cluster.wait_until(lambda: self.is_ready, timeout, f"{self.name} is Ready")

    @property
    def is_settled(self) -> bool:
        """Ready, with as many pods as wanted, each ready, and none that is still to go."""
        replicas, num_pods = self.get()["spec"]["replicas"], len(self.all_pods)
        return len(self.ready_pod_names) == num_pods == replicas and self.is_ready

    def wait_settled(self) -> None:
        self._cluster.wait_until(lambda: self.is_settled, START_SECONDS, f"{self.name} is Ready and no old pod is left")

    def patch(self, **spec: object) -> None:
        self._cluster.patch(KIND, self.name, self.namespace, {"spec": spec})

    def scale(self, replicas: int) -> None:
        """Through the scale subresource, as an autoscaler does."""
        self._cluster.kubectl("scale", "infdep", self.name, f"--namespace={self.namespace}", f"--replicas={replicas}")

    @property
    def selector(self) -> str:
        """Of its pods."""
        return f"{LABEL}={self.name}"

    @property
    def all_pods(self) -> Manifests:
        return self._cluster.list("Pod", self.namespace, self.selector)

    @property
    def pods(self) -> Manifests:
        """Those that are not being deleted, oldest first."""
        living = [pod for pod in self.all_pods if "deletionTimestamp" not in pod["metadata"]]
        return sorted(living, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    @property
    def pod_names(self) -> list[str]:
        return [str(pod["metadata"]["name"]) for pod in self.pods]

    @property
    def ready_pod_names(self) -> list[str]:
        return [str(pod["metadata"]["name"]) for pod in self.pods if condition_of(pod, "Ready").get("status") == "True"]

    @property
    def deployment(self) -> Manifest:
        return self._cluster.get("Deployment", self.name, self.namespace)

    def find_pod(self, name: str) -> Manifest | None:
        return self._cluster.find("Pod", name, self.namespace)

    @property
    def url(self) -> str:
        """The Service, by its address."""
        return f"http://{self._cluster.get('Service', self.name, self.namespace)['spec']['clusterIP']}"

    def end_pods(self) -> None:
        """Without their grace period."""
        for pod in self.all_pods:
            try:
                self._cluster.delete("Pod", pod["metadata"]["name"], self.namespace, grace_period_seconds=1)
            except NotFoundError:
                continue


def condition_of(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Empty where there is none."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


@contextmanager
def deployed(cluster: Cluster, namespace: str, name: str, spec: Mapping[str, object]) -> Iterator[Deployed]:
    """Ready when the block begins, gone when it has ended."""
    manifest = {"apiVersion": "stoker.dev/v1alpha1", "kind": KIND, "metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}
    cluster.apply(manifest)
    model = Deployed(cluster, name, namespace)
    try:
        model.wait_ready()
        yield model
    finally:
        remove(cluster, model)


def remove(cluster: Cluster, model: Deployed) -> None:
    """Ends its pods at once: what becomes of them is no matter any more."""
    cluster.delete(KIND, model.name, model.namespace)
    cluster.wait_until(lambda: cluster.find("Deployment", model.name, model.namespace) is None, START_SECONDS, f"the Deployment of {model.name} is gone")

    def no_pod_is_left() -> bool:
        model.end_pods()
        return not model.all_pods

    cluster.wait_until(no_pod_is_left, START_SECONDS, f"the pods of {model.name} are gone")
