"""The network namespaces: everything of the cluster is reachable inside, nothing outside can be reached from there.

The first node's namespace also holds the control plane, and the tests; another node hangs on it by a pair of devices.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMESPACES = Path("/run/netns")
NAMESPACE = "stoker"
ADDRESS = "172.31.250.1"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
SYSCTLS = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What the node with this number is called and reached by."""

    number: int

    @property
    def node(self) -> str:
        return f"node{self.number}"

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.number == 0 else f"{NAMESPACE}-{self.node}"

    @property
    def address(self) -> str:
        return f"172.31.250.{self.number + 1}"

    @property
    def pod_network(self) -> str:
        return f"10.244.{self.number}.0/24"

    def create(self) -> None:
        _run("ip", "netns", "add", self.namespace)
        _ip(self.namespace, "link", "set", "lo", "up")
        _run(*inside(self.namespace, "sysctl", "-qw", *SYSCTLS))
        if self.number == 0:
            self._route_nowhere()
        else:
            self._join()

    def _route_nowhere(self) -> None:
        """An address of a Service must have a route for DNAT to happen: one end of a pair nobody answers on, so nothing can leave."""
        _ip(self.namespace, "addr", "add", f"{self.address}/32", "dev", "lo")
        _ip(self.namespace, "link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")
        for device in ("nowhere0", "nowhere1"):
            _ip(self.namespace, "link", "set", device, "up")
        _ip(self.namespace, "route", "add", "default", "dev", "nowhere0")

    def _join(self) -> None:
        _ip(NAMESPACE, "link", "add", self.node, "type", "veth", "peer", "name", "uplink", "netns", self.namespace)
        _ip(NAMESPACE, "link", "set", self.node, "up")
        _ip(NAMESPACE, "route", "add", f"{self.address}/32", "dev", self.node, "src", ADDRESS)
        _ip(NAMESPACE, "route", "add", self.pod_network, "via", self.address, "dev", self.node)
        _ip(self.namespace, "addr", "add", f"{self.address}/32", "dev", "uplink")
        _ip(self.namespace, "link", "set", "uplink", "up")
        _ip(self.namespace, "route", "add", f"{ADDRESS}/32", "dev", "uplink")
        _ip(self.namespace, "route", "add", "default", "via", ADDRESS, "dev", "uplink")


def inside(namespace: str, *command: str) -> list[str]:
    """The command line that runs `command` in a network namespace; unlike `ip netns exec` it keeps /sys/fs/cgroup."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", *command]


def delete_all() -> None:
    for path in sorted(NAMESPACES.glob(f"{NAMESPACE}*")):
        _run("ip", "netns", "del", path.name)


def _ip(namespace: str, *arguments: str) -> None:
    _run("ip", "-netns", namespace, *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
