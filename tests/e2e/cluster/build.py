"""Kubernetes, helm and CoreDNS, built from the Go modules that the go.mod files beside this one pin."""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.paths import BINARIES, MODULES

MIN_GO = "1.26"


@dataclass(frozen=True, slots=True)
class Module:
    """One folder with a go.mod, and the commands built from it."""

    name: str
    commands: tuple[str, ...]

    @property
    def source(self) -> Path:
        return MODULES / self.name

    @property
    def folder(self) -> Path:
        """The built commands; another go.mod or another list of commands means another folder."""
        pins = b"".join((self.source / name).read_bytes() for name in ("go.mod", "go.sum")) + "".join(self.commands).encode()
        return BINARIES / f"{self.name}-{hashlib.sha256(pins).hexdigest()[:12]}"


KUBE = Module("kube", tuple(f"k8s.io/kubernetes/cmd/kube{name}" for name in ("-apiserver", "-controller-manager", "-scheduler", "let", "-proxy", "ctl")))
HELM = Module("helm", ("helm.sh/helm/v4/cmd/helm",))
COREDNS = Module("coredns", ("github.com/coredns/coredns",))


def kubernetes_version() -> str:
    """`v1.34.4`, as kube/go.mod pins it."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v[\d.]+)", (KUBE.source / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{KUBE.source / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def build(module: Module) -> Path:
    """The folder with the module's commands; minutes the first time, nothing afterwards.

    Raises RuntimeError where Go is missing, CalledProcessError where the build fails.
    """
    folder = module.folder
    if folder.is_dir():
        return folder
    if shutil.which("go") is None:
        raise RuntimeError(f"Go >= {MIN_GO} is needed to build {', '.join(module.commands)}, and there is no `go` in PATH: install it from https://go.dev/dl")
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["go", "build", "-trimpath", "-ldflags", _linker_flags(module), "-o", f"{unfinished}/", *module.commands]
    unfinished.mkdir(parents=True)
    subprocess.run(command, cwd=module.source, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    unfinished.rename(folder)
    return folder


def _linker_flags(module: Module) -> str:
    flags = "-s -w"
    if module is KUBE:
        version = kubernetes_version()
        major, minor, _ = version.removeprefix("v").split(".")
        variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return flags
