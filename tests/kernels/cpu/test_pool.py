"""The threads that all ops of a library share."""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from stoker_kernels.cpu.build import library_path
from stoker_kernels.cpu.ops import CpuOps

ENDS_WHILE_IT_COMPUTES = """
import ctypes, sys, threading

library, size, rows = ctypes.CDLL(sys.argv[1]), 576, 64
library.stoker_set_num_threads(ctypes.c_int64(3))
x, weight, out, computes = bytearray(2 * size * rows), bytearray(2 * size), bytearray(2 * size * rows), threading.Event()
x, weight, out = ((ctypes.c_char * len(array)).from_buffer(array) for array in (x, weight, out))
sizes = ctypes.c_int64(size), ctypes.c_int64(rows)

def compute():
    while True:
        library.stoker_rms_norm(x, *sizes, weight, sizes[0], ctypes.c_float(1e-5), out)
        computes.set()

threading.Thread(target=compute, daemon=True).start()
computes.wait()
"""


def test_more_threads_than_cores_give_the_same_bits(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, packed = randn(0, 50, 64), ops.pack(randn(1, 700, 64))
    expected = ops.linear(x, packed)
    ops.set_num_threads(2 * (os.cpu_count() or 1) + 1)
    assert all(torch.equal(ops.linear(x, packed), expected) for _ in range(10))


def test_calls_of_several_threads_at_the_same_time_get_their_own_results(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    packed = ops.pack(randn(0, 300, 128))

    def compute(seed: int) -> bool:
        x = randn(seed, 1 + seed, 128)
        expected = ops.linear(x, packed)
        return all(torch.equal(ops.linear(x, packed), expected) for _ in range(30))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(compute, range(8)))


def test_the_number_of_threads_may_change_while_others_compute(ops: CpuOps, randn: Callable[..., Tensor]) -> None:
    x, packed = randn(0, 20, 64), ops.pack(randn(1, 200, 64))
    expected, is_done = ops.linear(x, packed), threading.Event()

    def change() -> None:
        for number in itertools.cycle((1, 3, 2)):
            if is_done.is_set():
                return
            ops.set_num_threads(number)

    thread = threading.Thread(target=change)
    thread.start()
    results = [ops.linear(x, packed) for _ in range(100)]
    is_done.set()
    thread.join()
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("num_processes", [5, pytest.param(100, marks=pytest.mark.stress)])
def test_a_process_may_end_while_a_thread_of_it_computes(ops: CpuOps, num_processes: int) -> None:
    for _ in range(num_processes):
        program = [sys.executable, "-I", "-S", "-c", ENDS_WHILE_IT_COMPUTES, str(library_path(ops.instruction_set))]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
