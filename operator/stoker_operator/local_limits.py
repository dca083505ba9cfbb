"""What `stoker up` cannot do of an InferenceDeployment: fields that it leaves alone and says so, and fields that it must refuse."""

from collections.abc import Collection, Iterator

import msgspec

from stoker_engine.settings import Settings
from stoker_operator.names import API, ENGINE
from stoker_operator.plan import model_claim
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment, InferenceDeploymentSpec

OF_CLUSTERS = frozenset(
    {"accelerator", "cache", "shared_memory", "rollout", "availability", "network", "monitoring", "gateway_api", "pod_template", "paused", "restarted_at"}
)
OF_CONTAINERS = frozenset({"image", "image_pull_policy", "resources"})

Path = tuple[str | int, ...]


def ignored_fields(deployment: InferenceDeployment) -> list[str]:
    """The paths of what is set and means nothing here: it is about containers, pods and what surrounds them."""
    spec = deployment.spec
    return [
        *_set_fields("spec.model", spec.model, {"credentials_secret_ref"}),
        *(path for component, container in _containers(spec) for path in _set_fields(f"spec.{component}", container, OF_CONTAINERS)),
        *_set_fields("spec.lifecycle", spec.lifecycle, {"pre_stop_delay"}),
        *_set_fields("spec", spec, OF_CLUSTERS),
    ]


def fields_of_gateways(deployment: InferenceDeployment) -> list[str]:
    """The paths of what is set and only a gateway before the replicas can do."""
    return list(_set_fields("spec", deployment.spec, {"traffic"}))


def refused_field(deployment: InferenceDeployment) -> tuple[Path, str] | None:
    """The path of a field without which the replicas would be others, and why it cannot be had here; None if there is none."""
    uri = deployment.spec.model.uri
    if claim := model_claim(uri):
        return ("spec", "model", "uri"), f"the PersistentVolumeClaim {claim} is in a cluster; write file:///… for files of this machine, got {uri!r}"
    if keys := deployment.spec.api.api_keys_secret_ref:
        reason = f"the Secret {keys.name} is in a cluster; write api.args: [--api-keys-file=…] for a file of this machine, got {keys.name!r}"
        return ("spec", "api", "apiKeysSecretRef"), reason
    return next(_values_in_a_cluster(deployment.spec), None)


def _values_in_a_cluster(spec: InferenceDeploymentSpec) -> Iterator[tuple[Path, str]]:
    for component, container in _containers(spec):
        for index, variable in enumerate(container.env):
            if variable.value_from is not None:
                path = ("spec", component, "env", index, "valueFrom")
                yield path, f"the value of {variable.name} is in a cluster; write value instead, got {', '.join(variable.value_from) or 'nothing'}"


def _set_fields(path: str, struct: Settings, names: Collection[str]) -> Iterator[str]:
    """The paths of those fields of `names` that are not as they are by default."""
    for field in msgspec.structs.fields(struct):
        if field.name in names and getattr(struct, field.name) != field.default:
            yield f"{path}.{field.encode_name}"


def _containers(spec: InferenceDeploymentSpec) -> tuple[tuple[str, EngineSpec | ApiSpec], ...]:
    return (ENGINE, spec.engine), (API, spec.api)
