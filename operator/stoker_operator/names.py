"""Names that two parts must agree on: the kind's, the programs' and the paths'."""

from pathlib import Path

GROUP = "stoker.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceDeployment"
PLURAL = "inferencedeployments"
SINGULAR = "inferencedeployment"
SHORT_NAME = "infdep"

INFERENCE_DEPLOYMENT_LABEL = f"{GROUP}/inference-deployment"
"""On every object made for an InferenceDeployment, pods too: its name."""

FIELD_MANAGER = "stoker-operator"
"""Who the API server knows the operator's fields by."""

DEFAULT_NAMESPACE = "default"
MAX_NAME_LENGTH = 52
"""Generated names add up to 11 characters, and a DNS label has at most 63."""

API = "api"
ENGINE = "engine"
"""Components: also containers, Helm sections and label values."""

API_MODULE = "stoker_gateway.api"
ENGINE_MODULE = "stoker_engine"

HEALTH_PORT = 8001
"""The engine's own probes and metrics in a pod; `stoker up` gives each engine a free port."""

LOCAL_PORT = 8080
"""The OpenAI address of `stoker up`, unless `--port` says otherwise."""


def termination_path(socket_dir: str, component: str) -> str:
    """The termination message file of a local replica's api or engine."""
    return str(Path(socket_dir) / f"{component}.termination")


def local_title(namespace: str, name: str) -> str:
    """How lines and tables name an InferenceDeployment: by its name alone in the default namespace."""
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"
