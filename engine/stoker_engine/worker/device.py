"""Where the model runs, and how much of that there is."""

import logging
import os
from pathlib import Path

import torch

from stoker_engine.config import EngineConfig
from stoker_engine.errors import ConfigError
from stoker_engine.worker.cgroup import available_memory, usable_cpus

logger = logging.getLogger(__name__)


def choose_device(config: EngineConfig) -> torch.device:
    """The device of the settings, ready for use. Raises ConfigError if there is none of that kind."""
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise ConfigError("--device: 'cuda' was asked for, but torch finds no CUDA device; use 'cpu' or 'auto'")
    if config.device == "cpu" or not has_cuda:
        num_threads = config.num_threads or usable_cpus(len(os.sched_getaffinity(0)))
        torch.set_num_threads(num_threads)
        logger.info("device: cpu, %d threads", num_threads)
        return torch.device("cpu")
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    logger.info("device: %s, %s", device, torch.cuda.get_device_name(device))
    return device


def available_host_memory() -> int:
    """Bytes that this process may still take: what the machine has, or what its control group allows."""
    machine = _kilobytes(Path("/proc/meminfo"), "MemAvailable:")
    group = available_memory()
    return machine if group is None else min(machine, group)


def resident_bytes() -> int:
    """This process's resident memory now."""
    return _kilobytes(Path("/proc/self/status"), "VmRSS:")


def peak_resident_bytes() -> int:
    """The most resident memory since `reset_peak_resident_bytes`, or since the process began where the kernel does not allow the reset."""
    return _kilobytes(Path("/proc/self/status"), "VmHWM:")


def reset_peak_resident_bytes() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        logger.info("peak memory cannot be reset (%s): the load's peak counts as a step's", error.strerror)


def _kilobytes(path: Path, name: str) -> int:
    """The value of a `name  number kB` line, in bytes."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
