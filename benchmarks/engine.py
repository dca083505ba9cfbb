"""The engine without HTTP, each contestant's own offline class in a process of its own, all loaded once and standing still while another runs.

stream: one request of 128 in / 128 out alone. prefill: prompts of 1,024 tokens alone. batch16: 64 requests of 16 / 128, 32 at once. batch1024: 64 of
1,024 / 128, all at once.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from limits import Cost, Machine
from load import Workload, random_prompts
from model_shape import model_shape
from options import Options, read_options
from peak import bf16_peak
from peers import ROUTERS, VARIABLES
from processes import DRIVERS, Driver, running_driver
from report import Metric
from rounds import OURS, Line, Measure, Metrics, Round
from servers import BLOCK_BYTES, engine_settings

LINES = ("stream", "prefill", "batch16", "batch1024")
FEW, MANY = 32, 64
"""The most requests at once: of the first three lines, and of the last."""
NUM_BLOCKS = 5825
"""2 GiB; enough for 64 requests of 1,152 tokens."""
NUM_SINGLE = 2
NUM_PREFILLS = 3
PREFILL_LEN = 1024
BATCH_PEERS = ("vllm",)
"""The others answer one request at a time."""
Measured = tuple[Line, Sequence[Metric]]


@contextmanager
def running_drivers(options: Options, max_num_seqs: int, names: tuple[str, ...]) -> Iterator[dict[str, Driver]]:
    """Ours, and the peers of these names, loaded and warm."""
    settings = {name.replace("-", "_"): value for name, value in {"max-num-seqs": str(max_num_seqs), **engine_settings(options, NUM_BLOCKS)}.items()}
    ours = [sys.executable, str(DRIVERS / "stoker_offline.py"), json.dumps({"model": options.model_uri, **settings})]
    commands = {OURS: (ours, dict[str, str]())}
    for peer in options.peers:
        if peer.name in names:
            commands[peer.name] = (peer.offline_command(DRIVERS, max_num_seqs, NUM_BLOCKS * BLOCK_BYTES), VARIABLES)
    with ExitStack() as stack:
        drivers = {name: stack.enter_context(running_driver(*command)) for name, command in commands.items()}
        for driver in drivers.values():
            _seconds(driver, Workload(2, 2, 128, 8, seed=-1))
        yield drivers


def _seconds(driver: Driver, workload: Workload) -> float:
    """Of a workload whose requests are all sent at once."""
    with driver.running():
        return float(driver.ask({"prompts": random_prompts(workload), "output_len": workload.output_len})["seconds"])


def stream(driver: Driver, output_len: int, number: int) -> Metrics:
    """The time to the first token is taken off by a run of its own, so that no contestant has to be asked for times within a run."""
    seeds = [2 * (NUM_SINGLE * number + each) for each in range(NUM_SINGLE)]
    first = sum(_seconds(driver, Workload(1, 1, 128, 1, seed)) for seed in seeds) / NUM_SINGLE
    whole = sum(_seconds(driver, Workload(1, 1, 128, output_len, seed + 1)) for seed in seeds) / NUM_SINGLE
    return {"decode": (output_len - 1) / (whole - first), "latency": whole}


def prefill(driver: Driver, number: int) -> Metrics:
    """One prompt after the other."""
    seeds = [NUM_PREFILLS * number + each for each in range(NUM_PREFILLS)]
    return {"rate": NUM_PREFILLS * PREFILL_LEN / sum(_seconds(driver, Workload(1, 1, PREFILL_LEN, 1, seed)) for seed in seeds)}


def batch(driver: Driver, workload: Workload, number: int) -> Metrics:
    seconds = _seconds(driver, Workload(workload.num_requests, workload.concurrency, workload.input_len, workload.output_len, seed=number))
    return {
        "output": workload.num_requests * workload.output_len / seconds,
        "total": workload.num_requests * (workload.input_len + workload.output_len) / seconds,
    }


def measure_single(options: Options, drivers: Mapping[str, Driver], cost: Cost) -> Iterator[Measured]:
    """stream and prefill."""
    output_len = max(2, options.scaled(128))
    if options.wants("stream"):
        measures: dict[str, Measure] = {name: partial(stream, driver, output_len) for name, driver in drivers.items()}
        line = options.measure(f"one stream, 128 in / {output_len} out", measures)
        decode = tokens_metric(options, "decode", "decoded tokens", lambda machine: 1 / cost.decode_seconds(machine, 1, 128 + output_len / 2))
        yield line, (decode, Metric("latency", "latency", "s", "lower"))
    if options.wants("prefill"):
        measures = {name: partial(prefill, driver) for name, driver in drivers.items()}
        line = options.measure(f"prefill of {PREFILL_LEN}", measures, peak=bf16_peak)
        yield line, (tokens_metric(options, "rate", "tokens", lambda machine: PREFILL_LEN / cost.prefill_seconds(machine, PREFILL_LEN), computes=True),)


def measure_batch(options: Options, drivers: Mapping[str, Driver], cost: Cost, workload: Workload) -> Measured:
    """Long prompts are rated by all their tokens, short ones by the output's."""
    measures = {name: partial(batch, driver, workload) for name, driver in drivers.items() if name in (OURS, *BATCH_PEERS)}
    sizes = f"{workload.num_requests} × {workload.input_len} in / {workload.output_len} out, {workload.concurrency} at once"
    line = options.measure(sizes, measures, peak=bf16_peak)
    is_long = workload.input_len > workload.output_len
    num_tokens = workload.num_requests * (workload.output_len + (workload.input_len if is_long else 0))
    lengths = workload.input_len, workload.output_len

    def limit(machine: Machine) -> float:
        return num_tokens / cost.batch_seconds(machine, workload.num_requests, workload.concurrency, lengths)

    return line, (tokens_metric(options, "total" if is_long else "output", "all tokens" if is_long else "output tokens", limit, computes=True),)


def tokens_metric(options: Options, key: str, name: str, limit: Callable[[Machine], float], *, computes: bool = False) -> Metric:
    """Tokens per second. Peers load bf16: a limit from quantized weights is not theirs. What `computes` has none in products of bytes, whose peak is not
    measured."""
    quantization = options.settings.get("quantization", "none")

    def limit_of(each: Round) -> float:
        return limit(Machine(each.bandwidth * 1e9, each.peak))

    return Metric(key, name, "1/s", "higher", None if computes and quantization == "int8-w8a8" else limit_of, limits_peers=quantization == "none")


def measured(options: Options) -> Iterator[Measured]:
    cost = Cost.of(model_shape(options.model_uri), options.settings.get("quantization", "none"))
    num_requests, output_len = options.scaled(64), max(2, options.scaled(128))
    if options.wants("stream", "prefill", "batch16"):
        singles = tuple(peer.name for peer in options.peers if peer.name not in ROUTERS) if options.wants("stream", "prefill") else BATCH_PEERS
        with running_drivers(options, FEW, singles) as drivers:
            yield from measure_single(options, drivers, cost)
            if options.wants("batch16"):
                yield measure_batch(options, drivers, cost, Workload(num_requests, min(FEW, num_requests), 16, output_len))
    if options.wants("batch1024"):
        with running_drivers(options, MANY, BATCH_PEERS) as drivers:
            yield measure_batch(options, drivers, cost, Workload(num_requests, min(MANY, num_requests), 1024, output_len))


def main() -> None:
    options = read_options(__doc__, LINES)
    report = options.report("engine")
    for line, metrics in measured(options):
        report.add(line, metrics)
    report.finish()


if __name__ == "__main__":
    main()
