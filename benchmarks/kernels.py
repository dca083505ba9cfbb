"""Every op of a model in bfloat16 alone: what the engine would run on this device against plain torch, and the share of the measured bandwidth or peak.

Every call finds its arguments in memory, not in a cache: sets of them that are 256 MiB together take turns. Ops on a few rows are too short to be limited
by either; their time is what counts.
"""

import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import torch

from bandwidth import read_bandwidth
from kernel_cases import SIZES, Call, Case, Place, cases
from limits import Machine
from options import Options, read_options
from peak import bf16_peak, model_ops, synchronize
from report import Metric
from rounds import OURS, Line, Measure, Metrics, Reading
from stoker_kernels.dispatch import TORCH_OPS

TOTAL_BYTES = 1 << 28
MAX_SETS = 64
BATCH_SECONDS = 0.02
NUM_BATCHES = 7
GPU_BYTES = 1 << 32
NUM_COPIES = 10


def all_cases(device: str) -> list[Case]:
    """The ops of `Ops`; on a GPU the Triton kernels of more."""
    if device != "cuda":
        return list(cases(device))
    from gpu_cases import gpu_cases  # Triton, which is imported only where it runs

    return [*cases(device), *gpu_cases(SIZES[device])]


def build_calls(case: Case, place: Place) -> list[Call]:
    """As many sets of arguments as do not fit a cache."""
    number = min(MAX_SETS, max(1, round(TOTAL_BYTES / case.num_bytes)))
    return [case.build(place) for _ in range(number)]


def time_calls(calls: Sequence[Call], device: str, _number: int) -> Metrics:
    """Median over batches of 20 ms, each call with the next set."""
    turns = itertools.cycle(calls)

    def seconds(number: int) -> float:
        synchronize(device)
        start = perf_counter()
        for call in itertools.islice(turns, number):
            call()
        synchronize(device)
        return perf_counter() - start

    seconds(len(calls))
    number = max(1, round(BATCH_SECONDS / (seconds(3) / 3)))
    return {"time": statistics.median(seconds(number) for _ in range(NUM_BATCHES)) / number * 1e6}


def device_probe(device: str) -> Callable[[], Reading]:
    return gpu_bandwidth if device == "cuda" else read_bandwidth


def gpu_bandwidth() -> Reading:
    """Of the GPU's own memory: the best of ten copies of 4 GiB, bytes read and written."""
    source = torch.empty(GPU_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(NUM_COPIES):
        synchronize("cuda")
        start = perf_counter()
        target.copy_(source)
        synchronize("cuda")
        times.append(perf_counter() - start)
    return Reading(2 * GPU_BYTES / min(times) / 1e9)


def measure_case(case: Case, options: Options, device: str) -> tuple[Line, list[Metric]]:
    contestants: dict[str, Measure] = {}
    for name, ops in ((OURS, model_ops(device, SIZES[device].head_dim)), ("torch", TORCH_OPS)):
        contestants[name] = partial(time_calls, build_calls(case, Place(ops, device, SIZES[device])), device)
    line = options.measure(case.name, contestants, peak=partial(bf16_peak, device), bandwidth=device_probe(device))
    limit = Metric("time", "time", "µs", "lower", lambda each: Machine(each.bandwidth * 1e9, each.peak).seconds(case.num_bytes, case.num_operations) * 1e6)
    return line, [limit]


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = all_cases(device)
    options = read_options(__doc__, sorted({case.op for case in found}))
    report = options.report("kernels")
    with torch.inference_mode():
        for case in found:
            if options.wants(case.op):
                report.add(*measure_case(case, options, device))
    report.finish()


if __name__ == "__main__":
    main()
