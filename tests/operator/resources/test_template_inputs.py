from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.resources.template_inputs import NO_ROLL, template_inputs
from stoker_operator.v1alpha1 import InferenceDeployment, InferenceDeploymentSpec

MakeDeployment = Callable[..., InferenceDeployment]

BASE: dict[str, Any] = {"uri": "hf://org/name", "accelerator": {"count": 1, "product": ["A"]}}
"""A spec in which the settings of downloads and accelerators matter."""

BASES: dict[str, dict[str, Any]] = {
    "cache.type": {"cache": {"claimName": "claim", "hostPath": "/data"}},
    "cache.claimName": {"cache": {"type": "PersistentVolumeClaim", "claimName": "claim"}},
    "cache.hostPath": {"cache": {"type": "HostPath", "hostPath": "/data"}},
}
"""Where a leaf matters only beside another."""

VALUES: dict[str, Any] = {
    "accelerator.count": 2,
    "model.uri": "hf://org/other",
    "model.servedName": "other",
    "model.revision": "v2",
    "model.aliases": ["other"],
    "model.credentialsSecretRef": {"name": "secret"},
    "engine.image": "other:1",
    "engine.args": ["--other"],
    "engine.env": [{"name": "OTHER", "value": "1"}],
    "api.image": "other:1",
    "api.apiKeysSecretRef": {"name": "secret"},
    "api.requestTimeout": "5m",
    "api.corsAllowOrigins": ["https://chat.example.org"],
    "api.otlpEndpoint": "http://collector:4318",
    "api.chatTemplate": "/other.jinja",
    "api.toolCallParser": "mistral",
    "api.reasoningParser": "none",
    "api.args": ["--other"],
    "api.env": [{"name": "OTHER", "value": "1"}],
    "accelerator.resourceName": "amd.com/gpu",
    "accelerator.product": ["B"],
    "accelerator.resourceClaimTemplateName": "template",
    "cache.claimName": "other",
    "cache.hostPath": "/other",
    "cache.sizeLimit": "9Gi",
    "sharedMemory.sizeLimit": "9Gi",
    "lifecycle.startupTimeout": "7m",
    "lifecycle.preStopDelay": "7s",
    "lifecycle.drainTimeout": "7m",
    "lifecycle.engineHangTimeout": "7m",
    "rollout.maxSurge": "50%",
    "rollout.maxUnavailable": "50%",
    "availability.maxUnavailable": "50%",
    "podTemplate.spec": {"priorityClassName": "high"},
    "restartedAt": "now",
    "gatewayApi.httpRoute": {"parentRefs": [{"name": "public"}]},
    "gatewayApi.inferencePool": {"endpointPickerRef": {"name": "picker"}},
    "traffic.queue.timeout": "61s",
    "traffic.sessionHeader": "X-Session-Id",
    "traffic.timeouts.connect": "3s",
    "traffic.timeouts.request": "1h",
    "traffic.timeouts.streamIdle": "121s",
}
"""Another value of each leaf whose type does not give one."""


def unwrap(node: inspect.Type) -> inspect.Type:
    while isinstance(node, inspect.Metadata):
        node = node.type
    return node


def leaves(struct: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, inspect.Type, object]]:
    for field in inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        node = unwrap(field.type)
        name = (*path, field.encode_name)
        if isinstance(node, inspect.StructType):
            yield from leaves(node.cls, name)
        else:
            yield ".".join(name), node, field.default


def another(name: str, node: inspect.Type, default: object) -> object:
    if name in VALUES:
        return VALUES[name]
    match node:
        case inspect.BoolType():
            return not default
        case inspect.LiteralType(values=values):
            return next(value for value in values if value != default)
        case inspect.IntType():
            assert isinstance(default, int)
            return default + 1
        case inspect.FloatType():
            return 0.5
        case inspect.DictType():
            return {"example.com/other": "1"}
        case inspect.UnionType(types=types):
            member = unwrap(types[0])
            return 7 if isinstance(member, inspect.IntType) else another(name, member, default)
    raise AssertionError(f"name another value of {name} in VALUES")


LEAVES = {name: another(name, node, default) for name, node, default in leaves(InferenceDeploymentSpec)}


def with_leaf(spec: dict[str, Any], name: str, value: object) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    if name == "model.uri":
        return {**spec, "uri": value}
    return {**spec, first: with_leaf(spec.get(first, {}), rest, value) if rest else value}


def never_rolls(name: str) -> bool:
    return name.partition(".")[0] in NO_ROLL


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_of_the_spec_changes_the_pods_or_is_known_not_to(make_deployment: MakeDeployment, defaults: Defaults, name: str) -> None:
    spec = {**BASE, **BASES.get(name, {})}
    before, after = make_deployment(**spec), make_deployment(**with_leaf(spec, name, LEAVES[name]))
    assert before != after
    assert (pod_template(before, defaults) == pod_template(after, defaults)) == never_rolls(name)
    assert (template_inputs(before) == template_inputs(after)) == never_rolls(name)


def test_every_field_that_never_rolls_is_one_of_the_spec() -> None:
    assert set(InferenceDeploymentSpec.__struct_encode_fields__) >= NO_ROLL


def test_a_default_that_is_written_out_is_as_good_as_none(make_deployment: MakeDeployment) -> None:
    written: KubeObject = {"engine": {"blockSize": 16, "resources": {"limits": {}}}, "lifecycle": {"drainTimeout": "120s"}, "podTemplate": {}}
    assert template_inputs(make_deployment(**written)) == template_inputs(make_deployment())


def test_the_hash_is_the_same_in_every_release(make_deployment: MakeDeployment) -> None:
    spec = {"engine": {"maxNumSeqs": 7, "env": [{"name": "A", "value": "1"}]}, "accelerator": {"product": ["A"]}}
    assert template_inputs(make_deployment(uri="hf://org/name", **spec)) == "2c0474132aa3656b"
