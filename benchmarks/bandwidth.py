"""How fast this machine reads memory right now: decoding is limited by it, and on a virtual machine it moves by a factor of 1.7.

One thread per CPU, each pinned to its own: unpinned, a freshly started pair was seen to share one core for half a second and to read half as fast. The
read is an exclusive or over int64 in numpy. On 2 Zen 4 cores it is limited by memory, not by itself: 58 to 61 GB/s, as torch's sum and dot product and
as a loop of AVX-512 loads with one to eight streams and any prefetching (a core alone: 30 to 32 GB/s, so the pair does not share a limit).
"""

import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt

from rounds import Reading

PROBE_BYTES = 1 << 28
"""256 MiB: larger than any cache, the size of the demo model's weights."""
NUM_PASSES = 4
"""Over the data in each read, so that the threads' start, a tenth of a millisecond, counts for little."""
NUM_WARMUPS = 2
NUM_READS = 9
"""0.3 s in all."""


def read_bandwidth() -> Reading:
    """Medians of nine reads of random data by all CPUs of this process. Raises RuntimeError if a read came back wrong."""
    data, checksum = _random_data()
    cpus = sorted(os.sched_getaffinity(0))
    parts = np.array_split(data, len(cpus))
    barrier = Barrier(len(cpus))
    with _pinned_threads(cpus) as threads:
        reads = [_timed_read(threads, parts, barrier, checksum) for _ in range(NUM_WARMUPS + NUM_READS)]
    seconds, lost = zip(*reads[NUM_WARMUPS:], strict=True)
    return Reading(NUM_PASSES * PROBE_BYTES / statistics.median(seconds) / 1e9, statistics.mean(lost))


@contextmanager
def _pinned_threads(cpus: list[int]) -> Iterator[ThreadPoolExecutor]:
    """One thread on each of `cpus`."""
    barrier = Barrier(len(cpus))

    def pin(cpu: int) -> None:
        barrier.wait()  # so that every thread takes one
        os.sched_setaffinity(0, {cpu})

    with ThreadPoolExecutor(len(cpus)) as threads:
        list(threads.map(pin, cpus))
        yield threads


def _timed_read(threads: ThreadPoolExecutor, parts: list[npt.NDArray[np.int64]], barrier: Barrier, checksum: int) -> tuple[float, float]:
    """Seconds from the first thread's start to the last one's end, and the share of its time that a thread was not let run."""

    def read(part: npt.NDArray[np.int64]) -> tuple[float, float, float, list[int]]:
        barrier.wait()
        start, cpu_start = perf_counter(), thread_time()
        results = [_checksum(part) for _ in range(NUM_PASSES)]
        cpu_seconds, end = thread_time() - cpu_start, perf_counter()
        return start, end, max(0.0, 1 - cpu_seconds / (end - start)), results

    starts, ends, lost, partial = zip(*threads.map(read, parts), strict=True)
    if any(_checksum(np.array(of_pass)) != checksum for of_pass in zip(*partial, strict=True)):
        raise RuntimeError("the bandwidth probe read other data than it wrote")
    return max(ends) - min(starts), statistics.mean(lost)


def _checksum(data: npt.NDArray[np.int64]) -> int:
    return int(np.bitwise_xor.reduce(data))


@cache
def _random_data() -> tuple[npt.NDArray[np.int64], int]:
    """Random, so that no page is shared or compressed: zero pages would show impossible figures."""
    data = np.random.default_rng(0).integers(0, 2**62, size=PROBE_BYTES // 8, dtype=np.int64)
    return data, _checksum(data)
