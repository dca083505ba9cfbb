"""The engine and the api of a pod."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from stoker_engine.config import Device, LifecycleConfig, seconds
from stoker_engine.settings import to_args
from stoker_operator import names
from stoker_operator.kube_object import KubeObject
from stoker_operator.plan import api_config, engine_config
from stoker_operator.pod_spec_types import EnvVar, Resources
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.probes import api_probes, engine_probes
from stoker_operator.resources.volumes import PodVolume, is_downloaded
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment

CLAIM = "accelerator"
"""What the pod calls the accelerators of a ResourceClaimTemplate."""

SECURITY_CONTEXT: KubeObject = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}

_FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP", "NODE_NAME": "spec.nodeName"}
"""Who a container is, for logs and metrics."""


def engine_container(deployment: InferenceDeployment, defaults: Defaults, volumes: Sequence[PodVolume]) -> KubeObject:
    """A native sidecar: it starts first, and the kubelet stops it only after the api. Its command is the image's own, which begins with an init."""
    spec = deployment.spec.engine
    config = msgspec.structs.replace(engine_config(deployment), model_cache_dir=_cache_dir(deployment), device=_device(deployment))
    return {
        "name": names.ENGINE,
        "restartPolicy": "Always",
        **_program(spec, spec.image or defaults.engine_image, defaults),
        "args": [*to_args(config), *spec.args],
        "ports": [_port(names.HEALTH_PORT_NAME, names.HEALTH_PORT)],
        "env": _env(deployment, spec.env),
        "resources": _engine_resources(deployment),
        "volumeMounts": [volume.mount for volume in volumes if volume.is_for(names.ENGINE)],
        **engine_probes(),
    }


def api_container(deployment: InferenceDeployment, defaults: Defaults, volumes: Sequence[PodVolume]) -> KubeObject:
    spec = deployment.spec.api
    keys_file = None if spec.api_keys_secret_ref is None else f"{names.API_KEYS_PATH}/{names.API_KEYS_KEY}"
    config = msgspec.structs.replace(api_config(deployment), model_cache_dir=_cache_dir(deployment), api_keys_file=keys_file)
    return {
        "name": names.API,
        **_program(spec, spec.image or defaults.api_image, defaults),
        "args": [*to_args(config), *spec.args],
        "ports": [_port(names.HTTP_PORT_NAME, names.HTTP_PORT)],
        "env": _env(deployment, spec.env),
        "resources": _resources(spec.resources),
        "volumeMounts": [volume.mount for volume in volumes if volume.is_for(names.API)],
        **api_probes(deployment.spec.lifecycle),
        **_pre_stop(deployment.spec.lifecycle),
    }


def pre_stop_seconds(lifecycle: LifecycleConfig) -> int:
    """How long the kubelet sleeps before it asks the api to stop: whole seconds, never fewer than asked for."""
    return math.ceil(seconds(lifecycle.pre_stop_delay))


def _program(spec: EngineSpec | ApiSpec, image: str, defaults: Defaults) -> KubeObject:
    return {
        "image": image,
        "imagePullPolicy": spec.image_pull_policy or defaults.image_pull_policy,
        "securityContext": SECURITY_CONTEXT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _device(deployment: InferenceDeployment) -> Device:
    """An engine that was given GPUs says so where it finds none, instead of computing on the CPU."""
    accelerator, device = deployment.spec.accelerator, deployment.spec.engine.device
    has_gpus = accelerator.count > 0 and accelerator.resource_name == names.GPU_RESOURCE
    return "cuda" if device == "auto" and has_gpus else device


def _cache_dir(deployment: InferenceDeployment) -> str | None:
    return names.CACHE_PATH if is_downloaded(deployment) else None


def _pre_stop(lifecycle: LifecycleConfig) -> KubeObject:
    """Of the api alone: a sidecar's hook would run at once, beside it."""
    delay = pre_stop_seconds(lifecycle)
    return {"lifecycle": {"preStop": {"sleep": {"seconds": delay}}}} if delay else {}


def _port(name: str, number: int) -> KubeObject:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _env(deployment: InferenceDeployment, extra: Iterable[EnvVar]) -> list[KubeObject]:
    """Ours, then the user's; of two with one name, the last one in the first one's place: the API server takes each name once."""
    env = {name: {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}} for name, path in _FIELDS.items()}
    # The user of the images has no home, and libraries keep their caches there.
    env["HOME"] = {"name": "HOME", "value": "/tmp"}
    if secret := deployment.spec.model.credentials_secret_ref:
        env[names.TOKEN_VARIABLE] = {"name": names.TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": names.TOKEN_KEY}}}
    env |= {variable.name: _env_var(variable) for variable in extra}
    return list(env.values())


def _env_var(variable: EnvVar) -> KubeObject:
    """An empty value is the default, which an apply would leave out of the live object."""
    value = {"value": variable.value} if variable.value else {}
    source = {"valueFrom": variable.value_from} if variable.value_from is not None else {}
    return {"name": variable.name, **value, **source}


def _resources(resources: Resources) -> KubeObject:
    asked = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {part: amounts for part, amounts in asked.items() if amounts}


def _engine_resources(deployment: InferenceDeployment) -> KubeObject:
    accelerator = deployment.spec.accelerator
    resources = _resources(deployment.spec.engine.resources)
    if accelerator.resource_claim_template_name:
        return {**resources, "claims": [{"name": CLAIM}]}
    if accelerator.count:
        return {**resources, "limits": {accelerator.resource_name: accelerator.count, **resources.get("limits", {})}}
    return resources
