"""What is read of a cluster before a rollout, and how often; nothing runs here."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from cluster.cluster import Cluster, Manifest
from operated import Operated
from recording_proxy import RecordingProxy, recording_proxy
from stoker_operator.cluster import Cluster as OperatorsCluster
from stoker_operator.cluster_view import ViewReader
from stoker_operator.decode_object import decode_inference_deployment
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.rollout import ClusterView
from stoker_operator.store import Store
from stoker_operator.v1alpha1 import InferenceDeployment

SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader with the operator's rights, and what it asks."""

    views: ViewReader
    store: Store
    proxy: RecordingProxy

    async def read(self, deployment: InferenceDeployment, live: Manifest | None = None) -> ClusterView:
        return await self.views.read(deployment, live, datetime.now(UTC))

    def num_asked(self, verb: str, resource: str) -> int:
        return sum((request.verb, request.resource) == (verb, resource) for request in self.proxy.requests)


@pytest.fixture
async def reading(place: Operated) -> AsyncIterator[Reading]:
    with recording_proxy(place.account.kubeconfig) as proxy:
        configuration, store = Configuration(), Store()
        await kubernetes_config.load_kube_config(str(place.account.kubeconfig), client_configuration=configuration)
        async with ApiClient(configuration=configuration) as client:
            reader = ViewReader(OperatorsCluster(client, place.namespace), store, Defaults("engine", "api", "IfNotPresent"))
            yield Reading(reader, store, proxy)


def _deployment(place: Operated, **spec: object) -> InferenceDeployment:
    return decode_inference_deployment(place.manifest("alpha", **spec))


def _claim(place: Operated, mode: str) -> Manifest:
    spec = {"accessModes": [mode], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shelf", "namespace": place.namespace}, "spec": spec}


def _pod(place: Operated) -> Manifest:
    labels = {"stoker.dev/inference-deployment": "alpha"}
    metadata = {"name": "p", "namespace": place.namespace, "labels": labels, "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node0"}, "status": {}}


async def test_a_claim_that_is_made_anew_is_read_anew_and_one_in_use_once(cluster: Cluster, place: Operated, reading: Reading) -> None:
    deployment = _deployment(place, model={"uri": "pvc://shelf/model"})
    assert (await reading.read(deployment)).claims == []
    for mode in ("ReadWriteMany", "ReadWriteOnce"):
        cluster.apply(_claim(place, mode))
        assert [claim["spec"]["accessModes"] for claim in (await reading.read(deployment)).claims] == [[mode]]
        if mode == "ReadWriteMany":
            cluster.delete("PersistentVolumeClaim", "shelf", place.namespace)
            cluster.wait_until(lambda: cluster.find("PersistentVolumeClaim", "shelf", place.namespace) is None, SECONDS, "the claim is gone")
    reading.store.put(_pod(place))
    num_before = reading.num_asked("get", "persistentvolumeclaims")
    assert len([claim for _ in range(3) for claim in (await reading.read(deployment)).claims]) == 3
    assert reading.num_asked("get", "persistentvolumeclaims") == num_before
    reading.views.forget((place.namespace, "alpha"))
    await reading.read(deployment)
    assert reading.num_asked("get", "persistentvolumeclaims") == num_before + 1


async def test_a_rollout_that_is_refused_again_and_again_lists_the_clusters_pods_once(place: Operated, reading: Reading) -> None:
    live: Manifest = {"metadata": {"annotations": {"stoker.dev/template-inputs": "other"}}}
    deployment = _deployment(place)
    for _ in range(3):
        view = await reading.read(deployment, live)
        assert view.nodes
    assert (reading.num_asked("list", "pods"), reading.num_asked("list", "nodes")) == (1, 1)
    await reading.read(_deployment(place, engine={"seed": 7}), live)
    assert reading.num_asked("list", "pods") == 2
    begun: Manifest = {"metadata": {"annotations": {"stoker.dev/template-inputs": template_inputs(deployment)}}}
    assert (await reading.read(deployment, begun)).nodes is None
    await reading.read(deployment, live)
    assert reading.num_asked("list", "pods") == 3
