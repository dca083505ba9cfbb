"""etcd, the API server, the controller manager, the scheduler and the cluster's DNS server, as processes of this machine."""

import json
import subprocess
from pathlib import Path

from cluster import processes
from cluster.certificates import Authority
from cluster.network import ADDRESS, POD_NETWORK, SERVICE_NETWORK, inside
from cluster.network import NAMESPACE as NETWORK_NAMESPACE
from cluster.paths import AUDIT_LOG, KUBECONFIG, STATE
from cluster.waiting import wait_until

SERVER = f"https://{ADDRESS}:6443"
FIRST_SERVICE_ADDRESS = "10.96.0.1"
ETCD = "http://127.0.0.1:2379"
API_LIMITS = ("--kube-api-qps=300", "--kube-api-burst=400")

# What tests count: who wrote what. Reads are left out; there are a hundred for each write.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}, {"level": "None"}],
}

COREFILE = f"""\
.:53 {{
  bind {ADDRESS}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {KUBECONFIG} local
  }}
}}
"""


def start(kubernetes: Path, coredns: Path, authority: Authority) -> None:
    """Returns when the API server answers."""
    authority.write_kubeconfig(KUBECONFIG, SERVER, "/O=system:masters/CN=admin")
    urls = (f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}", "--listen-peer-urls=http://127.0.0.1:2380")
    processes.start("etcd", "etcd", f"--data-dir={STATE / 'etcd'}", *urls, "--unsafe-no-fsync")
    tokens = authority.key_pair("service-accounts")
    processes.start("kube-apiserver", kubernetes / "kube-apiserver", *_api_server_flags(authority, tokens))
    wait_until(lambda: is_ready(kubernetes), 120, f"the API server answers (see {STATE}/log/kube-apiserver.log)")
    manager = authority.write_kubeconfig(STATE / "controller-manager.kubeconfig", SERVER, "/CN=system:kube-controller-manager")
    processes.start(
        "kube-controller-manager",
        kubernetes / "kube-controller-manager",
        f"--kubeconfig={manager}",
        f"--service-account-private-key-file={tokens[0]}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--cluster-cidr={POD_NETWORK}",
        *API_LIMITS,
    )
    scheduler = authority.write_kubeconfig(STATE / "scheduler.kubeconfig", SERVER, "/CN=system:kube-scheduler")
    processes.start("kube-scheduler", kubernetes / "kube-scheduler", f"--kubeconfig={scheduler}", "--leader-elect=false", *API_LIMITS)
    corefile = STATE / "Corefile"
    corefile.write_text(COREFILE, encoding="utf-8")
    processes.start("coredns", coredns / "coredns", "-conf", corefile)


def is_ready(kubernetes: Path) -> bool:
    """Whether the API server answers."""
    return _kubectl(kubernetes, "get", "--raw", "/readyz") == "ok"


def is_node_ready(kubernetes: Path, node: str) -> bool:
    return _kubectl(kubernetes, "get", "node", node, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == "True"


def _kubectl(kubernetes: Path, *arguments: str) -> str:
    """Its output; empty where it fails, for whichever reason."""
    command = inside(NETWORK_NAMESPACE, str(kubernetes / "kubectl"), f"--kubeconfig={KUBECONFIG}", "--request-timeout=5s", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _api_server_flags(authority: Authority, tokens: tuple[Path, Path]) -> list[str]:
    policy = STATE / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY), encoding="utf-8")
    names = f"DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:{FIRST_SERVICE_ADDRESS},IP:{ADDRESS}"
    certificate, key = authority.sign("apiserver", "/CN=kube-apiserver", names)
    to_kubelet_certificate, to_kubelet_key = authority.sign("apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver", "DNS:kube-apiserver")
    private, public = tokens
    return [
        f"--etcd-servers={ETCD}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--advertise-address={ADDRESS}",
        "--secure-port=6443",
        f"--client-ca-file={authority.certificate}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-client-certificate={to_kubelet_certificate}",
        f"--kubelet-client-key={to_kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={AUDIT_LOG}",
    ]
