"""The volumes of a pod, and where its containers see them."""

from dataclasses import dataclass

from stoker_engine.model_files import is_on_hub
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import API, API_KEYS_KEY, API_KEYS_PATH, CACHE_PATH, ENGINE, SOCKETS_PATH
from stoker_operator.plan import PVC_MOUNT, model_claim
from stoker_operator.quantities import same_amount
from stoker_operator.v1alpha1 import InferenceDeployment, InferenceDeploymentSpec

KEYS_MODE = 0o440
"""For the pod's group alone."""

SOCKETS_SIZE = "16Mi"
"""Three sockets and a lock take a few kilobytes of memory."""


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A volume and its mount; `only` names the one container that has it."""

    name: str
    source: KubeObject
    path: str
    read_only: bool = False
    only: str | None = None

    def is_for(self, container: str) -> bool:
        return self.only is None or self.only == container

    @property
    def manifest(self) -> KubeObject:
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> KubeObject:
        return {"name": self.name, "mountPath": self.path, **({"readOnly": True} if self.read_only else {})}


def is_downloaded(deployment: InferenceDeployment) -> bool:
    """Whether the model comes from a hub into the cache volume."""
    return is_on_hub(deployment.spec.model.uri)


def pod_volumes(deployment: InferenceDeployment) -> tuple[PodVolume, ...]:
    spec = deployment.spec
    volumes = [
        PodVolume("sockets", {"emptyDir": {"medium": "Memory", "sizeLimit": SOCKETS_SIZE}}, SOCKETS_PATH),
        PodVolume("tmp", {"emptyDir": {}}, "/tmp"),
    ]
    size = spec.shared_memory.size_limit
    # auto: one process needs no more than the runtime's own 64 MiB. A volume whose limit is 0 would have none.
    if size != "auto" and not same_amount(size, 0):
        memory = {"medium": "Memory", "sizeLimit": size}
        volumes.append(PodVolume("shm", {"emptyDir": memory}, "/dev/shm", only=ENGINE))
    if keys := spec.api.api_keys_secret_ref:
        # Without subPath, which would never see the Secret change.
        secret = {"secretName": keys.name, "defaultMode": KEYS_MODE, "items": [{"key": API_KEYS_KEY, "path": API_KEYS_KEY}]}
        volumes.append(PodVolume("api-keys", {"secret": secret}, API_KEYS_PATH, read_only=True, only=API))
    if is_downloaded(deployment):
        volumes.append(PodVolume("model-cache", _cache_source(spec), CACHE_PATH))
    if claim := model_claim(spec.model.uri):
        volumes.append(PodVolume("model", {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}, PVC_MOUNT, read_only=True))
    return tuple(volumes)


def _cache_source(spec: InferenceDeploymentSpec) -> KubeObject:
    cache = spec.cache
    match cache.type:
        case "PersistentVolumeClaim":
            return {"persistentVolumeClaim": {"claimName": cache.claim_name}}
        case "HostPath":
            return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
        case "EmptyDir":
            return {"emptyDir": {} if cache.size_limit is None else {"sizeLimit": cache.size_limit}}
