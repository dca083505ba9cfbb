"""The Debian packages of a node; what is missing gets installed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "etcd": "etcd-server",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
    "openssl": "openssl",
    "gcc": "gcc",
    "/usr/include/signal.h": "libc6-dev",
}


def install_missing(packages: Mapping[str, str] = PACKAGES) -> None:
    """`packages` by a file, or a program in PATH, that each brings. Raises RuntimeError where something is missing and this is no Debian, or not root."""
    missing = sorted({package for file, package in packages.items() if not _exists(file)})
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RuntimeError(f"install {', '.join(missing)} first, or run this as root on Debian, where they are installed on demand")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=True)
    subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing], env=environment, check=True)


def _exists(file: str) -> bool:
    return Path(file).exists() if file.startswith("/") else shutil.which(file) is not None
