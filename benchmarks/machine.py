"""What a result must say of the machine and the programs that made it."""

import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8", "sve", "bf16", "i8mm")
"""Of the processor: those that kernels are chosen by."""
PACKAGES = ("stoker", "torch", "numpy", "triton")
ROOT = Path(__file__).parents[1]


class Facts(msgspec.Struct, frozen=True):
    """`revision` ends in `+` where the tree had changes."""

    date: str
    revision: str
    processor: str
    flags: tuple[str, ...]
    cores: int
    memory_gib: float
    gpu: str | None
    kernel: str
    python: str
    versions: dict[str, str]

    @property
    def summary(self) -> str:
        return f"{self.occasion}: {self.description}"

    @property
    def occasion(self) -> str:
        """The day, and what was measured."""
        return f"{self.date[:10]}, {self.revision}"

    @property
    def description(self) -> str:
        names = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        gpu = f", {self.gpu}" if self.gpu else ""
        return f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB{gpu}, {' '.join(self.flags)}; {names}"


def read_facts() -> Facts:
    return Facts(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=_revision(),
        processor=_cpuinfo("model name") or platform.processor(),
        flags=tuple(flag for flag in FLAGS if flag in (_cpuinfo("flags") or _cpuinfo("Features")).split()),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / (1 << 30), 1),
        gpu=_gpu(),
        kernel=platform.release(),
        python=platform.python_version(),
        versions=dict(_versions()),
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _revision() -> str:
    """Empty outside a checkout."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpuinfo(key: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _gpu() -> str | None:
    import torch  # here, so that what measures without torch starts without it

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
