"""Stoker as the chart installs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cluster.cluster import Cluster, Manifest, pod_security

CHART = str(Path(__file__).parents[2] / "charts" / "stoker")
RELEASE = "stoker"
OPERATOR = "stoker-operator"
GATEWAY = "stoker-gateway"
TAG = "dev"
NEXT_TAG = "next"
"""The tags that the images of a test cluster have; they differ in a label."""


class Installation:
    """A release in `namespace`; InferenceDeployments of tests are in `models`."""

    def __init__(self, cluster: Cluster, namespace: str, models: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self.models = models

    def install(self, tag: str, *options: str) -> None:
        """Also over another tag; returns when the operator and the gateways are ready."""
        namespace, values = f"--namespace={self.namespace}", f"--set=image.tag={tag}"
        # Other tests apply the definition without helm.
        self._cluster.helm("upgrade", "--install", RELEASE, CHART, namespace, values, "--take-ownership", *options)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until the operator and the gateways are."""
        self._wait_for_rollout(OPERATOR)
        self._wait_for_rollout(GATEWAY)

    def upgrade(self, tag: str) -> None:
        self.install(tag, "--reuse-values")

    def restart(self) -> None:
        """Returns when another pod of the operator works."""
        self._restart(OPERATOR)

    def restart_gateways(self) -> None:
        """Returns when other pods of the gateway work; those of before may still drain."""
        self._restart(GATEWAY)

    @property
    def gateway_url(self) -> str:
        """The Service of the gateways, by its address."""
        return f"http://{self._cluster.get('Service', GATEWAY, self.namespace)['spec']['clusterIP']}"

    def _restart(self, name: str) -> None:
        self._cluster.kubectl("rollout", "restart", f"deployment/{name}", f"--namespace={self.namespace}")
        self._wait_for_rollout(name)

    def _wait_for_rollout(self, name: str) -> None:
        self._cluster.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={self.namespace}", "--timeout=120s")

    def uninstall(self) -> None:
        self._cluster.helm("uninstall", RELEASE, f"--namespace={self.namespace}")

    @property
    def user(self) -> str:
        """As the audit log knows it."""
        return f"system:serviceaccount:{self.namespace}:{OPERATOR}"

    def lease(self) -> Manifest:
        return self._cluster.get("Lease", OPERATOR, self.namespace)

    def wait_for_leader(self) -> None:
        """Until an operator renews the Lease from now on."""
        since = datetime.now(UTC)
        self._cluster.wait_until(lambda: _renewed(self.lease()) > since, 60, "an operator holds the Lease")


@contextmanager
def installation(cluster: Cluster) -> Iterator[Installation]:
    """For one namespace of models, so that other operators of the cluster are not disturbed."""
    with cluster.namespace("stoker-system", pod_security("restricted")) as system, cluster.namespace("models", pod_security("restricted")) as models:
        installed = Installation(cluster, system, models)
        # The machine's cores are few, and promised to the models.
        installed.install(TAG, f"--set-json=operator.namespaces={_json_list(models)}", "--set=gateway.resources.requests.cpu=10m")
        try:
            yield installed
        finally:
            installed.uninstall()


def _json_list(name: str) -> str:
    return f'["{name}"]'


def _renewed(lease: Manifest) -> datetime:
    return datetime.fromisoformat(lease["spec"]["renewTime"])
