"""The control groups under which the kubelets put their pods: /stoker/<node>."""

import os
from functools import partial
from pathlib import Path

from cluster.waiting import wait_until

PARENT = "stoker"


def create_control_group(name: str) -> str:
    """Makes the group in every hierarchy of this machine, and returns its name for the kubelet."""
    for hierarchy in _hierarchies():
        (hierarchy / PARENT / name).mkdir(parents=True, exist_ok=True)
    return f"/{PARENT}/{name}"


def delete_control_groups() -> None:
    """Removes all of them; their processes have to be gone."""
    for group in [hierarchy / PARENT for hierarchy in _hierarchies()]:
        if group.is_dir():
            wait_until(partial(_remove, group), 10, f"the control groups in {group} are empty")


def processes_of(container_id: str) -> list[int]:
    """The pids of a container's processes, its first process first; pids of the caller's namespace.

    Raises LookupError where it has none.
    """
    found = sorted((level_pid, pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (level_pid := _pid_inside(pid, container_id)))
    if not found:
        raise LookupError(f"no process runs in container {container_id}")
    return [pid for _, pid in found]


def program_name(pid: int) -> str:
    """As `ps` shows it; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _pid_inside(pid: int, container_id: str) -> int:
    """The pid in the innermost namespace; 0 where the process is none of the container's."""
    try:
        if container_id not in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"):
            return 0
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def _hierarchies() -> list[Path]:
    """Version 1 has a mount for each controller, version 2 one for all; a hybrid machine has both, and runc makes groups in both."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def _remove(group: Path) -> bool:
    """Whether the group and all below it are gone."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True
