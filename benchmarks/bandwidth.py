"""How fast this machine reads memory right now: decoding is limited by it, and on a virtual machine it moves by a factor of 1.7."""

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

PROBE_BYTES = 1 << 28
"""256 MiB: larger than any cache, the size of the demo model's weights."""
NUM_THREADS = 2
NUM_READS = 5

ResultT = TypeVar("ResultT")


@dataclass(slots=True, frozen=True)
class Bracketed(Generic[ResultT]):
    """A measurement and the read bandwidth, in GB/s, right before and after it."""

    value: ResultT
    before: float
    after: float


def bracketed(measure: Callable[[], ResultT]) -> Bracketed[ResultT]:
    """Runs `measure` between two probes."""
    before = read_bandwidth()
    value = measure()
    return Bracketed(value, before, read_bandwidth())


def read_bandwidth() -> float:
    """Median of five reads of random data by two threads, in GB/s. Raises RuntimeError if a read came back wrong."""
    data, checksum = _random_data()
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        return PROBE_BYTES / statistics.median(_timed_read(threads, data, checksum) for _ in range(NUM_READS)) / 1e9


def _timed_read(threads: ThreadPoolExecutor, data: npt.NDArray[np.int64], checksum: int) -> float:
    start = perf_counter()
    partial = list(threads.map(_checksum, np.array_split(data, NUM_THREADS)))
    elapsed = perf_counter() - start
    if _checksum(np.array(partial)) != checksum:
        raise RuntimeError("the bandwidth probe read other data than it wrote")
    return elapsed


def _checksum(data: npt.NDArray[np.int64]) -> int:
    return int(np.bitwise_xor.reduce(data))


@cache
def _random_data() -> tuple[npt.NDArray[np.int64], int]:
    """Random, so that no page is shared or compressed."""
    data = np.random.default_rng(0).integers(0, 2**62, size=PROBE_BYTES // 8, dtype=np.int64)
    return data, _checksum(data)
