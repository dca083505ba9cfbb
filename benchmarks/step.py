"""What a decode step costs beside the model: microseconds outside the forward and the logits, and their share, with 1, 8 and 32 requests.

One engine core in this process, without sockets. Outside are scheduling, the step's arrays, sampling and the outputs; greedy, and drawn with temperature
0.8 and top_p 0.95.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from decoding import KINDS, PROMPT_LEN, decoding, start
from limits import Cost, Machine
from model_shape import model_shape
from options import Options, read_options
from report import Metric
from rounds import OURS, Line, Metrics, Round
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.models.fused_llama import FusedLlama
from stoker_engine.models.llama import LlamaModel

SIZES = (1, 8, 32)
NUM_STEPS = 200
LINES = tuple(f"{kind}-{size}" for kind in KINDS for size in SIZES)


class ModelClock:
    """The seconds that models of this process have spent in their forwards and logits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for model in (FusedLlama, LlamaModel):
            for name in ("forward", "compute_logits"):
                setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            start = perf_counter()
            result = method(*args)
            self.seconds += perf_counter() - start
            return result

        return run


def measure(core: EngineCore, clock: ModelClock, num_steps: int, line: str, number: int) -> Metrics:
    """Medians of the steps in which every request decodes."""
    kind, _, size = line.rpartition("-")
    steps, models = [], []
    with decoding(core, KINDS[kind], int(size), f"{line}-{number}"):
        for _ in range(num_steps):
            begin, clock.seconds = perf_counter(), 0.0
            core.step()
            steps.append(perf_counter() - begin)
            models.append(clock.seconds)
    outside = statistics.median(step - model for step, model in zip(steps, models, strict=True))
    step = statistics.median(steps)
    return {"step": step * 1e3, "model": statistics.median(models) * 1e3, "outside": outside * 1e6, "share": 100 * outside / step}


def metrics_of(line: str, cost: Cost, num_steps: int) -> tuple[Metric, ...]:
    """The limit is that of reading weights, keys and values."""
    num_requests, context = int(line.rpartition("-")[2]), PROMPT_LEN + num_steps / 2

    def limit(each: Round) -> float:
        return 1e3 * cost.decode_seconds(Machine(each.bandwidth * 1e9), num_requests, context)

    return (
        Metric("step", "step", "ms", "lower", limit),
        Metric("model", "of it in the model", "ms", "lower", limit),
        Metric("outside", "outside the model", "µs", "lower"),
        Metric("share", "share outside", "%", "lower"),
    )


def lines(options: Options, core: EngineCore, clock: ModelClock) -> Iterator[tuple[str, Line]]:
    for line in LINES:
        if options.wants(line):
            yield line, options.measure(line, {OURS: partial(measure, core, clock, options.scaled(NUM_STEPS), line)})


def main() -> None:
    options = read_options(__doc__, LINES)
    clock = ModelClock()
    core = start(options)
    report = options.report("step")
    cost = Cost.of(model_shape(options.model_uri), options.settings.get("quantization", "none"))
    for name, line in lines(options, core, clock):
        report.add(line, metrics_of(name, cost, options.scaled(NUM_STEPS)))
    report.finish()
    core.executor.shutdown()


if __name__ == "__main__":
    main()
