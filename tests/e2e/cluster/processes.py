"""The cluster's processes, in a pid and a mount namespace of their own: with the first one die all the others, and their mounts go."""

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster import network
from cluster.paths import LOGS, STATE
from cluster.waiting import wait_until

INIT = "init"
RECORD = STATE / "processes.json"
# Where containerd, runc, CNI and kubelet write whatever their settings say: each cluster sees empty folders of its own there.
PRIVATE_FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid and when it started, so that a pid used again after a restart of the machine is told apart."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        return cls(pid, _started(pid))

    def is_alive(self) -> bool:
        return self.started != "" and _started(self.pid) == self.started


def start_init(pause: Path) -> None:
    """The first process of the namespaces, which reaps what is orphaned; and the folders that are private in there."""
    # `unshare` stays outside as the parent; its only child is the first process inside.
    parent = _spawn(["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child", str(pause)], Path(os.devnull))
    children = Path(f"/proc/{parent}/task/{parent}/children")
    wait_until(lambda: _program(children) == pause.name, 10, "the first process of the namespaces runs")
    init = int(children.read_text(encoding="utf-8"))
    _record(INIT, init)
    for folder in PRIVATE_FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["nsenter", "--target", str(init), "--mount", "mount", "-t", "tmpfs", "tmpfs", folder], check=True)


def start(name: str, *command: str | Path, namespace: str = network.NAMESPACE) -> None:
    """Starts a process beside the first one; its output goes to log/<name>.log."""
    enter = ["nsenter", f"--target={recorded()[INIT].pid}", "--pid", "--mount", f"--net={network.NAMESPACES / namespace}", f"--wd={STATE}"]
    LOGS.mkdir(exist_ok=True)
    _record(name, _spawn([*enter, *map(str, command)], LOGS / f"{name}.log"))


def _spawn(command: list[str], output: Path) -> int:
    """The pid of a process that outlives this one, in a session of its own."""
    read = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    write = (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return os.posix_spawnp(command[0], command, os.environ, file_actions=[read, write, (os.POSIX_SPAWN_DUP2, 1, 2)], setsid=True)


def dead() -> list[str]:
    """The names of the processes that were started and no longer run."""
    return [name for name, process in recorded().items() if not process.is_alive()]


def kill_all() -> None:
    """Kills the first process, and the kernel all the others; a record of an earlier boot names no process of this one."""
    init = recorded().get(INIT)
    if init is None or not init.is_alive():
        return
    os.kill(init.pid, signal.SIGKILL)
    # The kernel ends the first process only after every other one of its namespace.
    wait_until(lambda: not init.is_alive(), 60, "the processes of the cluster are gone")


def recorded() -> dict[str, ProcessId]:
    if not RECORD.exists():
        return {}
    return {name: ProcessId(**fields) for name, fields in json.loads(RECORD.read_text(encoding="utf-8")).items()}


def _record(name: str, pid: int) -> None:
    process = ProcessId.of(pid)
    fields = {known: {"pid": other.pid, "started": other.started} for known, other in (recorded() | {name: process}).items()}
    unfinished = RECORD.with_suffix(".new")
    unfinished.write_text(json.dumps(fields, indent=2), encoding="utf-8")
    unfinished.rename(RECORD)


def _started(pid: int) -> str:
    """Boot and clock tick of the process's start; empty where there is no such process, or only its corpse."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return "" if state in "ZX" else f"{boot}/{fields[18]}"


def _program(children: Path) -> str:
    """The name of the only child's program; empty where there is none yet."""
    try:
        status = Path(f"/proc/{int(children.read_text(encoding='utf-8'))}/status").read_text(encoding="utf-8")
    except (ValueError, FileNotFoundError, ProcessLookupError):
        return ""
    found = re.match(r"Name:\s*(.*)", status)
    return found[1] if found else ""
