import mmap
import os
from pathlib import Path

import pytest
import torch

from stoker_engine.layers.attention import KVCacheShape
from stoker_engine.worker import cgroup
from stoker_engine.worker.device import available_host_memory, choose_device, peak_resident_bytes, reset_peak_resident_bytes, resident_bytes
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_kernels.dispatch import TORCH_OPS


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cgroup, "MOUNT", tmp_path / "mount")
    return tmp_path


def _write(root: Path, membership: str, files: dict[str, str]) -> None:
    (root / "membership").write_text(membership)
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_cgroup_v2_limits_are_the_tightest_of_all_levels(groups: Path) -> None:
    files = {
        "memory.max": "max",
        "pod/memory.max": "1000",
        "pod/memory.current": "700",
        "pod/memory.stat": "anon 500\ninactive_file 100",
        "pod/engine/memory.max": "5000",
        "pod/engine/memory.current": "600",
        "pod/cpu.max": "150000 100000",
        "pod/engine/cpu.max": "max 100000",
    }
    _write(groups, "0::/pod/engine\n", files)
    assert cgroup.available_memory() == 400
    assert cgroup.cpu_quota() == 1.5


def test_cgroup_v1_limits_are_read_by_controller(groups: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/pod/memory.limit_in_bytes": "800",
        "memory/pod/memory.usage_in_bytes": "300",
        "cpu/pod/cpu.cfs_quota_us": "400000",
        "cpu/pod/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
    }
    _write(groups, "4:memory:/pod\n1:cpu:/pod\n0::/\n", files)
    assert cgroup.available_memory() == 500
    assert cgroup.cpu_quota() == 4.0


def test_without_control_groups_there_is_no_limit(groups: Path) -> None:
    assert cgroup.available_memory() is None
    assert cgroup.cpu_quota() is None
    assert cgroup.usable_cpus(6) == 6


@pytest.mark.parametrize(("quota", "usable"), [("50000 100000", 1), ("250000 100000", 2), ("900000 100000", 6)])
def test_threads_are_the_whole_cpus_of_the_quota(groups: Path, quota: str, usable: int) -> None:
    _write(groups, "0::/\n", {"cpu.max": quota})
    assert cgroup.usable_cpus(6) == usable


@pytest.mark.parametrize("setting", [None, 1])
def test_the_number_of_threads_is_the_setting_or_the_usable_cpus(make_config, groups: Path, setting: int | None) -> None:
    assert choose_device(make_config(num_threads=setting)) == torch.device("cpu")
    assert torch.get_num_threads() == (setting or len(os.sched_getaffinity(0)))


def test_available_memory_is_the_control_groups_where_that_is_less(groups: Path) -> None:
    machine = available_host_memory()
    _write(groups, "0::/\n", {"memory.max": "3000", "memory.current": "1000"})
    assert available_host_memory() == 2000 < machine


def test_an_untouched_kv_cache_takes_no_memory() -> None:
    shape = KVCacheShape(num_layers=4, block_size=16, num_kv_heads=8, head_dim=64)
    before = resident_bytes()
    caches = allocate_kv_cache(TORCH_OPS, shape, 2000, torch.bfloat16, torch.device("cpu"))
    assert sum(cache.numel() * cache.itemsize for cache in caches) == 2000 * shape.block_bytes(torch.bfloat16) > 200 << 20
    assert resident_bytes() - before < 20 << 20
    assert not caches[3][1999].any()


@pytest.mark.fault("E4")
def test_the_peak_is_what_was_allocated_meanwhile() -> None:
    before = resident_bytes()
    reset_peak_resident_bytes()
    with mmap.mmap(-1, 100 << 20) as pages:  # not of the heap, which may have that much resident and free
        pages.write(bytes(100 << 20))
    assert peak_resident_bytes() - before > 90 << 20
