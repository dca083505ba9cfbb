"""`stoker operator` as a process of this machine, known to the API server as a ServiceAccount that may do what rbac.py says and nothing else."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cluster.cluster import Cluster
from stoker_operator.rbac import OWN_NAMESPACE, WATCHED_NAMESPACES, WHOLE_CLUSTER, Grant

NAME = "stoker-operator"
RBAC = "rbac.authorization.k8s.io"


class OperatorProcess:
    """Started when made. Its log is at `log`."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "stoker_operator", "operator", "--health-host=127.0.0.1", "--health-port=0", *flags]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        with log.open("wb") as stream:
            self._process = subprocess.Popen(command, stderr=stream, stdout=stream, env=environment)

    @property
    def port(self) -> int:
        """Of its health server; 0 while it does not listen yet."""
        found = re.findall(r"/metrics on port (\d+)", self.log.read_text())
        return int(found[-1]) if found else 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def metric(self, name: str) -> float:
        """Of /metrics; 0 while it does not listen yet, or has no such number."""
        if self.port == 0:
            return 0.0
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    @property
    def num_reconciled(self) -> int:
        """How often an InferenceDeployment was looked at."""
        return int(self.metric("stoker_operator_reconcile_duration_seconds_count"))

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()


class OperatorAccount:
    """A ServiceAccount of `namespace`, its roles and a kubeconfig with its token."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.user = f"system:serviceaccount:{namespace}:{NAME}"
        self._cluster = cluster
        self._namespace = namespace
        self._cluster_role = f"{NAME}-{namespace}"
        self.kubeconfig = folder / "operator.kubeconfig"

    def create(self) -> None:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": self._namespace}}
        own = _role("Role", NAME, self._namespace, (*WATCHED_NAMESPACES, *OWN_NAMESPACE))
        whole = _role("ClusterRole", self._cluster_role, None, WHOLE_CLUSTER)
        self._cluster.apply(account, own, whole, self._binding(own), self._binding(whole))
        token = self._cluster.kubectl("create", "token", NAME, "--namespace", self._namespace, "--duration=2h").strip()
        config = json.loads(self._cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "--output=json"))
        config["users"] = [{"name": NAME, "user": {"token": token}}]
        config["contexts"][0]["context"] |= {"user": NAME, "namespace": self._namespace}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def server(self) -> tuple[str, int]:
        """The API server's address."""
        server = urlsplit(self._config()["clusters"][0]["cluster"]["server"])
        return server.hostname or "", server.port or 443

    def go_through(self, port: int) -> None:
        """Reaches the API server at a port of 127.0.0.1, which its certificate names, too."""
        config = self._config()
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def delete(self) -> None:
        """What is outside the namespace."""
        self._cluster.delete("ClusterRoleBinding", self._cluster_role)
        self._cluster.delete("ClusterRole", self._cluster_role)

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        return config

    def _binding(self, role: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{role['kind']}Binding",
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": self._namespace}],
        }


@contextmanager
def operator_account(cluster: Cluster, namespace: str, folder: Path) -> Iterator[OperatorAccount]:
    account = OperatorAccount(cluster, namespace, folder)
    account.create()
    try:
        yield account
    finally:
        account.delete()


@contextmanager
def running_operator(account: OperatorAccount, namespace: str, log: Path, *flags: str) -> Iterator[OperatorProcess]:
    process = OperatorProcess(account.kubeconfig, log, f"--namespace={namespace}", f"--lease-namespace={namespace}", *flags)
    try:
        yield process
    finally:
        if process.exit_code() is None:
            process.terminate()


def _role(kind: str, name: str, namespace: str | None, grants: Iterable[Grant]) -> dict[str, Any]:
    rules = [
        {
            "apiGroups": [grant.kind.group],
            "resources": [grant.resource],
            "verbs": list(grant.verbs),
            **({"resourceNames": list(grant.names)} if grant.names else {}),
        }
        for grant in grants
    ]
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
