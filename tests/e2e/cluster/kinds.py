"""The kinds of cluster that tests run on, and what differs between them."""

import os
import subprocess
from pathlib import Path
from typing import Protocol

from cluster import local, network
from cluster.paths import AUDIT_LOG, CACHE, KUBECONFIG

KIND_CLUSTER = "stoker"


class Kind(Protocol):
    @property
    def kubeconfig(self) -> str | None:
        """None: kubectl's own rules."""

    @property
    def audit_log(self) -> Path | None: ...

    def environment(self) -> dict[str, str]:
        """What kubectl and helm need to find the cluster."""

    def load_image(self, archive: Path) -> None: ...


class Local:
    """Processes on this machine, by `make cluster`; the caller runs in their network."""

    kubeconfig = str(KUBECONFIG)
    audit_log = AUDIT_LOG

    def __init__(self) -> None:
        """Raises RuntimeError where the cluster is not up, or this process is outside of its network."""
        if not local.is_up():
            raise RuntimeError("no cluster is up: `make cluster` starts one, `make e2e` one for its tests")
        if os.stat("/proc/self/ns/net").st_ino != os.stat(network.NAMESPACES / network.NAMESPACE).st_ino:
            raise RuntimeError("tests must run in the cluster's network: PYTHONPATH=tests/e2e python -m cluster run -- pytest tests/e2e -m e2e")

    def environment(self) -> dict[str, str]:
        return local.environment()

    def load_image(self, archive: Path) -> None:
        local.load_image(archive)


class KindInDocker:
    """kind's cluster named "stoker", made where it is missing; needs Docker, kind, kubectl and helm in PATH."""

    kubeconfig = str(CACHE / "kind.kubeconfig")
    audit_log = None

    def __init__(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        if KIND_CLUSTER in _kind("get", "clusters").split():
            _kind("export", "kubeconfig", f"--name={KIND_CLUSTER}", f"--kubeconfig={self.kubeconfig}")
        else:
            _kind("create", "cluster", f"--name={KIND_CLUSTER}", f"--kubeconfig={self.kubeconfig}", "--wait=120s")

    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": self.kubeconfig}

    def load_image(self, archive: Path) -> None:
        _kind("load", "image-archive", str(archive), f"--name={KIND_CLUSTER}")


class Current:
    """The current context of the user's kubeconfig; its nodes have the images, or a registry that they can pull from."""

    kubeconfig = None
    audit_log = None

    def environment(self) -> dict[str, str]:
        return {}

    def load_image(self, archive: Path) -> None:
        """Nothing to do: how images get to the nodes is the owner's business."""


KINDS = {"local": Local, "kind": KindInDocker, "current": Current}


def _kind(*arguments: str) -> str:
    done = subprocess.run(["kind", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kind {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout
