"""The threads that all ops of a library share."""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from stoker_kernels.cpu.ops import CpuOps

ENDS_WHILE_IT_COMPUTES = """
import threading
import torch
from stoker_kernels.cpu.library import find_instruction_set
from stoker_kernels.cpu.ops import CpuOps

ops = CpuOps(find_instruction_set())
ops.set_num_threads(3)
x, packed, computes = torch.zeros(64, 512).bfloat16(), ops.pack(torch.zeros(512, 512).bfloat16()), threading.Event()

def compute():
    while True:
        ops.linear(x, packed)
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


def test_a_process_may_end_while_a_thread_of_it_computes() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_WHILE_IT_COMPUTES], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
