"""What tests do with a cluster, whichever kind it is."""

import atexit
import os
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import kubernetes
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError
from kubernetes.dynamic.resource import Resource, ResourceList

from cluster import audit, control_groups, waiting
from cluster.kinds import Kind

Manifest: TypeAlias = dict[str, Any]
Manifests: TypeAlias = list[Manifest]
Pids: TypeAlias = list[int]
Writes: TypeAlias = list[audit.Write]

FIELD_MANAGER = "stoker-e2e"
MERGE_PATCH = "application/merge-patch+json"
INIT = "tini"
_DISCOVERY = threading.Lock()
"""The client asks again for what it does not know, and empties its table meanwhile, which other threads read."""

CLEANUP_TIMEOUT = 90.0
WATCH_SECONDS = 2


class Cluster:
    """Objects go in and come out as plain dictionaries; a kind is its name ("Pod"), or "Event.events.k8s.io" where the group is needed."""

    wait_until = staticmethod(waiting.wait_until)

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        api_client = kubernetes.config.new_client_from_config(kind.kubeconfig)
        self._client = DynamicClient(api_client, cache_file=_discovery_file())
        self._core = kubernetes.client.CoreV1Api(api_client)

    def apply(self, *manifests: Manifest, field_manager: str = FIELD_MANAGER) -> None:
        """Server-side apply, one after the other; conflicts are forced."""
        for manifest in manifests:
            resource = _find_resource(self._client, manifest["kind"], manifest["apiVersion"])
            metadata = manifest["metadata"]
            self._client.server_side_apply(resource, manifest, metadata["name"], metadata.get("namespace"), force_conflicts=True, field_manager=field_manager)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Manifest:
        """Raises NotFoundError of kubernetes.dynamic.exceptions."""
        return _plain(self._client.get(_find_resource(self._client, kind), name, namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Manifest | None:
        """As `get`; None where there is no such object."""
        try:
            return self.get(kind, name, namespace)
        except NotFoundError:
            return None

    def list(self, kind: str, namespace: str | None = None, label_selector: str = "") -> Manifests:
        """All of a namespace, or of every one."""
        items: Manifests = _plain(self._client.get(_find_resource(self._client, kind), None, namespace, label_selector=label_selector))["items"]
        return items

    def watch(self, kind: str, name: str, namespace: str, stopping: threading.Event) -> Iterator[Manifest]:
        """Every version of one object from now on, until it is gone or `stopping` is set, which is looked at every few seconds."""
        resource, version = _find_resource(self._client, kind), str(self.get(kind, name, namespace)["metadata"]["resourceVersion"])
        while not stopping.is_set():
            for event in self._client.watch(resource, namespace, name, resource_version=version, timeout=WATCH_SECONDS):
                version = event["raw_object"]["metadata"]["resourceVersion"]
                yield event["raw_object"]
                if event["type"] == "DELETED":
                    return

    def patch(self, kind: str, name: str, namespace: str | None, body: Manifest) -> Manifest:
        """A JSON merge patch."""
        return _plain(self._client.patch(_find_resource(self._client, kind), body, name, namespace, content_type=MERGE_PATCH))

    def patch_status(self, kind: str, name: str, namespace: str | None, body: Manifest) -> Manifest:
        """A JSON merge patch of the status subresource."""
        status = _find_resource(self._client, kind).subresources["status"]
        return _plain(self._client.patch(status, body, name, namespace, content_type=MERGE_PATCH))

    def delete(self, kind: str, name: str, namespace: str | None = None, grace_period_seconds: int | None = None) -> None:
        """Asks for it and returns; what it owns is deleted in the background. Raises NotFoundError."""
        self._client.delete(_find_resource(self._client, kind), name, namespace, grace_period_seconds=grace_period_seconds, propagation_policy="Background")

    def evict(self, pod: str, namespace: str) -> None:
        """As `kubectl drain` does for each pod. Raises ApiException with status 429 where a PodDisruptionBudget forbids it."""
        eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod, namespace=namespace))
        self._core.create_namespaced_pod_eviction(pod, namespace, eviction)

    def logs(self, pod: str, namespace: str, container: str, *, previous: bool = False) -> str:
        """`previous`: of the container before its last restart."""
        return str(self._core.read_namespaced_pod_log(pod, namespace, container=container, previous=previous))

    @contextmanager
    def namespace(self, prefix: str = "e2e", labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """A fresh namespace; its pods are gone when the block has ended, the rest a few seconds later. `pod_security` makes labels."""
        name = f"{prefix}-{uuid.uuid4().hex[:6]}"
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}})
        try:
            yield name
        finally:
            self.delete("Namespace", name)
            # Nothing can be made there any more: end the pods without their grace period. Kubernetes itself takes 5 s before it starts with that.
            self._core.delete_collection_namespaced_pod(name, grace_period_seconds=1)
            waiting.wait_until(lambda: not self.list("Pod", name), CLEANUP_TIMEOUT, f"the pods of namespace {name} are gone")

    def load_image(self, archive: Path) -> None:
        """Puts the images of a tar (OCI or Docker) on every node."""
        self._kind.load_image(archive)

    def kubectl(self, *arguments: str) -> str:
        return _run("kubectl", arguments, self._kind.environment())

    def helm(self, *arguments: str) -> str:
        return _run("helm", arguments, self._kind.environment())

    def nodes(self) -> Manifests:
        """By name."""
        return sorted(self.list("Node"), key=lambda node: str(node["metadata"]["name"]))

    def set_extended_resource(self, name: str, count: int, node: str | None = None) -> None:
        """Advertises `count` devices ("nvidia.com/gpu") on a node, without one: the first. The scheduler counts them, nothing checks them."""
        node = node or str(self.nodes()[0]["metadata"]["name"])
        amounts = {name: str(count)}
        self.patch_status("Node", node, None, {"status": {"capacity": amounts, "allocatable": amounts}})

    def container_pid(self, pod: str, namespace: str, container: str) -> int:
        """The program of a running container, as os.kill knows it: its first process, or what that one starts where it is an init."""
        pids = self.container_pids(pod, namespace, container)
        return next(pid for pid in pids if control_groups.program_name(pid) != INIT or pid == pids[-1])

    def container_pids(self, pod: str, namespace: str, container: str) -> Pids:
        """All processes of a running container, its first one first. Raises LookupError where it does not run on this machine."""
        status = self.get("Pod", pod, namespace).get("status", {})
        states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        container_id = next((state.get("containerID", "") for state in states if state["name"] == container), "")
        if not container_id:
            raise LookupError(f"container {container} of pod {namespace}/{pod} has not been started")
        return control_groups.processes_of(container_id.partition("://")[2])

    def audit_writes(self, since: datetime, user: str) -> Writes:
        """The user's creates, updates, patches and deletes since then, oldest first. Raises LookupError where the cluster keeps no such log."""
        if self._kind.audit_log is None:
            raise LookupError("only the local cluster keeps an audit log that tests can read")
        return audit.writes(self._kind.audit_log, since, user)


def pod_security(level: str) -> dict[str, str]:
    """The labels of a namespace that enforces "privileged", "baseline" or "restricted"."""
    return {"pod-security.kubernetes.io/enforce": level}


def _discovery_file() -> str:
    """Gone when the program ends: the client's own choice is shared by all clusters with the same address, and outlives them."""
    folder = tempfile.mkdtemp(prefix="stoker-cluster-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return os.path.join(folder, "discovery.json")


def _find_resource(client: DynamicClient, kind: str, api_version: str | None = None) -> Resource:
    """Of several groups with such a kind, the core group's, then the preferred version's."""
    kind, _, group = kind.partition(".")
    with _DISCOVERY:
        found = client.resources.search(kind=kind, **{key: value for key, value in (("group", group), ("api_version", api_version)) if value})
    matches = [resource for resource in found if not isinstance(resource, ResourceList) and api_version in (None, resource.group_version)]
    if not matches:
        raise LookupError(f"the cluster knows no kind {kind!r}{f' of {api_version or group}' if api_version or group else ''}")
    preferred: Resource = min(matches, key=lambda resource: (resource.group != "", not resource.preferred))
    return preferred


def _run(program: str, arguments: tuple[str, ...], environment: dict[str, str]) -> str:
    done = subprocess.run([program, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(arguments)} exited {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _plain(instance: Any) -> Manifest:
    plain: Manifest = instance.to_dict()
    return plain
