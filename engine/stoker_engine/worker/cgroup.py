"""What this process's control groups allow it: memory and CPU time, under cgroup v1 and v2. Where there are none: no limit."""

import math
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes left under the tightest memory limit, page cache that can be dropped counted as free; None without a limit."""
    left = []
    for directory in _directories("memory"):
        limit = _first_number(directory / "memory.max", directory / "memory.limit_in_bytes")
        used = _first_number(directory / "memory.current", directory / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            left.append(max(0, limit - used + _droppable_bytes(directory / "memory.stat")))
    return min(left, default=None)


def cpu_quota() -> float | None:
    """CPUs' worth of time under the tightest quota; None without one."""
    return min((quota for directory in _directories("cpu") if (quota := _quota(directory)) is not None), default=None)


def _quota(directory: Path) -> float | None:
    text = _read(directory / "cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _first_number(directory / "cpu.cfs_quota_us"), _first_number(directory / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def _directories(controller: str) -> Iterator[Path]:
    """The process's own group for a controller and the groups around it, those that are visible here."""
    text = _read(MEMBERSHIP) or ""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root = MOUNT
        elif controller in controllers.split(","):
            root = MOUNT / controller
        else:
            continue
        group = Path(path.lstrip("/"))
        yield from (root / part for part in (group, *group.parents) if (root / part).is_dir())


def _first_number(*paths: Path) -> int | None:
    """The number in the first file that there is; None for `max`, and for the huge number that means no limit in v1."""
    text = next((text for path in paths if (text := _read(path)) is not None), "max")
    return None if text == "max" or int(text) >= 1 << 60 else int(text)


def _droppable_bytes(path: Path) -> int:
    values = dict(line.split(" ", 1) for line in (_read(path) or "").splitlines())
    return int(values.get("inactive_file", 0))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def usable_cpus(num_schedulable: int) -> int:
    """Whole CPUs that this process may use of those it can be scheduled on."""
    quota = cpu_quota()
    return num_schedulable if quota is None else max(1, min(num_schedulable, math.floor(quota)))
