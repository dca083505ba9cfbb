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

INSTANCE_LABELS = {"app.kubernetes.io/name": "stoker", "app.kubernetes.io/managed-by": "stoker-operator", "app.kubernetes.io/part-of": "stoker"}
"""On every object that the operator makes, besides INSTANCE_LABEL."""

INSTANCE_LABEL = "app.kubernetes.io/instance"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
HOSTNAME_LABEL = "kubernetes.io/hostname"

DESIRED_ANNOTATION = f"{GROUP}/desired"
"""On every child: the hash of what was applied, so that a field that is no longer wanted is seen."""

TEMPLATE_INPUTS_ANNOTATION = f"{GROUP}/template-inputs"
"""On the Deployment: the hash of what of the spec its pod template was made from."""

RENDERED_BY_ANNOTATION = f"{GROUP}/rendered-by"
"""On the Deployment: the hash of the operator and the default images that made its pod template."""

RETRIED_AT_ANNOTATION = f"{GROUP}/retried-at"
"""On a ReplicaSet: when we last had pods tried again that the API server had refused."""

RESTARTED_AT_ANNOTATION = f"{GROUP}/restarted-at"
"""On the pods: the spec's restartedAt."""

FIELD_MANAGER = "stoker-operator"
"""Who the API server knows the operator's fields by."""

DEFAULT_NAMESPACE = "default"
MAX_NAME_LENGTH = 52
"""Generated names add up to 11 characters, and a DNS label has at most 63."""

API = "api"
ENGINE = "engine"
GATEWAY = "gateway"
"""Components: also containers, Helm sections and label values."""

API_MODULE = "stoker_gateway.api"
ENGINE_MODULE = "stoker_engine"
GATEWAY_MODULE = "stoker_gateway.router"

GPU_RESOURCE = "nvidia.com/gpu"
"""The accelerators that device `cuda` is for."""

HTTP_PORT = 8000
HTTP_PORT_NAME = "http"
SERVICE_PORT = 80
"""The OpenAI address: of a pod, and of the Service before the pods."""

HEALTH_PORT = 8001
HEALTH_PORT_NAME = "metrics"
"""The engine's own probes and metrics in a pod; `stoker up` gives each engine a free port."""

METRICS_PATH = "/metrics"
LIVENESS_PATH = "/livez"
READINESS_PATH = "/readyz"
STARTUP_PATH = "/startupz"
LOAD_PATH = "/load"

SOCKETS_PATH = "/run/stoker"
CACHE_PATH = "/var/cache/stoker"
"""Directories of a pod's containers: the sockets, and hf:// models."""

API_KEYS_PATH = "/etc/stoker/api-keys"
API_KEYS_KEY = "keys"
"""Where the api finds its API keys: a directory of its container, and the key of the Secret, which is the file's name, too."""

TOKEN_KEY = "token"
TOKEN_VARIABLE = "HF_TOKEN"
"""The key of a credentials Secret, and the environment variable that it becomes."""

RUN_AS_ID = 65532
"""The user and group of the images."""

LOCAL_PORT = 8080
"""The OpenAI address of `stoker up`, unless `--port` says otherwise."""


def termination_path(socket_dir: str, component: str) -> str:
    """The termination message file of a local replica's api or engine."""
    return str(Path(socket_dir) / f"{component}.termination")


def local_title(namespace: str, name: str) -> str:
    """How lines and tables name an InferenceDeployment: by its name alone in the default namespace."""
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"
