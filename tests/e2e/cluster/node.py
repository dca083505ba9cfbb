"""A node: containerd, kubelet and kube-proxy with files, control groups and pod addresses of their own."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import processes
from cluster.certificates import Authority
from cluster.control_groups import create_control_group
from cluster.control_plane import SERVER
from cluster.network import ADDRESS, POD_NETWORK, NodeNetwork
from cluster.paths import STATE
from cluster.pause import IMAGE as PAUSE_IMAGE
from cluster.waiting import wait_until

# Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, and every pod fails with "can't get final child's PID from pipe": restrict_oom_score_adj
# avoids it. With netns_mounts_under_state_dir the pods' network namespaces leave nothing in /run/netns.
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{pause_image}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


@dataclass(frozen=True, slots=True)
class Node:
    network: NodeNetwork

    @property
    def name(self) -> str:
        return self.network.node

    @property
    def folder(self) -> Path:
        return STATE / self.name

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    def start(self, kubernetes: Path, authority: Authority, pause_archive: Path) -> None:
        """Returns when the processes run; the kubelet registers the node by itself."""
        (self.folder / "cni").mkdir(parents=True)
        self._write_json("cni/10-pods.conflist", self._pod_network())
        configuration = CONTAINERD.format(folder=self.folder, pause_image=PAUSE_IMAGE)
        (self.folder / "containerd.toml").write_text(configuration, encoding="utf-8")
        self._start("containerd", "containerd", f"--config={self.folder / 'containerd.toml'}")
        wait_until(self._containerd_answers, 30, f"containerd of {self.name} answers (see {STATE}/log/{self.name}-containerd.log)")
        self.load_image(pause_archive)
        kubeconfig = authority.write_kubeconfig(self.folder / f"{self.name}-kubelet.kubeconfig", SERVER, f"/O=system:nodes/CN=system:node:{self.name}")
        settings = self._write_json("kubelet.json", self._kubelet(authority))
        flags = [f"--kubeconfig={kubeconfig}", f"--config={settings}", f"--root-dir={self.folder / 'kubelet'}", f"--node-ip={self.network.address}"]
        self._start("kubelet", kubernetes / "kubelet", *flags, f"--hostname-override={self.name}")
        proxy = authority.write_kubeconfig(self.folder / f"{self.name}-proxy.kubeconfig", SERVER, "/CN=system:kube-proxy")
        flags = [f"--kubeconfig={proxy}", f"--cluster-cidr={POD_NETWORK}", "--proxy-mode=iptables", "--conntrack-max-per-core=0"]
        self._start("kube-proxy", kubernetes / "kube-proxy", *flags, f"--hostname-override={self.name}")

    def load_image(self, archive: Path) -> None:
        """Imports a tar of OCI or Docker images."""
        done = self._ctr("images", "import", str(archive))
        if done.returncode:
            raise RuntimeError(f"containerd of {self.name} refuses {archive}: {done.stderr.strip()}")

    def images(self) -> list[str]:
        return self._ctr("images", "ls", "-q").stdout.split()

    def _start(self, program: str, *command: str | Path) -> None:
        processes.start(f"{self.name}-{program}", *command, namespace=self.network.namespace)

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", f"--address={self.socket}", "--namespace=k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _containerd_answers(self) -> bool:
        return self.socket.exists() and self._ctr("version").returncode == 0

    def _write_json(self, name: str, content: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
        return path

    def _pod_network(self) -> dict[str, Any]:
        ranges = [[{"subnet": self.network.pod_network}]]
        addresses = {"type": "host-local", "dataDir": str(self.folder / "addresses"), "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]}

    def _kubelet(self, authority: Authority) -> dict[str, Any]:
        certificate, key = authority.sign(self.name, f"/CN={self.name}", f"DNS:{self.name},IP:{self.network.address}")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": str(authority.certificate)}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": create_control_group(self.name),
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            # By default all kubelets of a machine share these folders, and each empties the first of what it does not know.
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "clusterDomain": "cluster.local",
            "clusterDNS": [ADDRESS],
            "resolvConf": "",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            # Images cannot be pulled again: none may be collected.
            "imageGCHighThresholdPercent": 100,
        }
