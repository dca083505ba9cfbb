"""What structured output costs: decode steps of 8 and 32 requests whose outputs follow a JSON schema, beside as many of free form.

One engine core in this process, without sockets; greedy, and drawn with temperature 0.8 and top_p 0.95. The schema is an array of records that goes on for
longer than the steps, so that none of the requests ends.
"""

import json
import statistics
from collections.abc import Iterator
from functools import partial
from time import perf_counter

import msgspec

from decoding import KINDS, decoding, start
from options import Options, read_options
from report import Metric
from rounds import OURS, Line, Metrics
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.sampling_params import SamplingParams, StructuredOutputs

SIZES = (8, 32)
NUM_STEPS = 100
NUM_SLICES = 4
"""Of either kind, by turns: a machine that slows down slows both."""
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog", "bird"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
        "at": {"type": ["string", "null"], "format": "date"},
    },
    "required": ["name", "age", "kind", "tags", "at"],
    "additionalProperties": False,
}
SCHEMA = StructuredOutputs("json", json.dumps({"type": "array", "items": RECORD, "minItems": 1000}))
LINES = tuple(f"{kind}-{size}" for kind in KINDS for size in SIZES)
METRICS = (
    Metric("free", "step, free form", "ms", "lower"),
    Metric("structured", "step, JSON schema", "ms", "lower"),
    Metric("cost", "cost of the schema", "%", "lower"),
)


def time_steps(core: EngineCore, params: SamplingParams, size: int, name: str, num_steps: int) -> list[float]:
    """Seconds of the steps in which every request decodes."""
    seconds = []
    with decoding(core, params, size, name):
        for _ in range(num_steps):
            begin = perf_counter()
            core.step()
            seconds.append(perf_counter() - begin)
    return seconds


def measure(core: EngineCore, num_steps: int, line: str, number: int) -> Metrics:
    kind, _, size = line.rpartition("-")
    free, structured = KINDS[kind], msgspec.structs.replace(KINDS[kind], structured_outputs=SCHEMA)
    seconds: dict[str, list[float]] = {"free": [], "structured": []}
    for index in range(NUM_SLICES):
        for name, params in (("free", free), ("structured", structured)):
            seconds[name] += time_steps(core, params, int(size), f"{name}-{line}-{number}-{index}", max(1, num_steps // NUM_SLICES))
    medians = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
    return {**medians, "cost": 100 * (medians["structured"] / medians["free"] - 1)}


def lines(options: Options, core: EngineCore) -> Iterator[Line]:
    for line in LINES:
        if options.wants(line):
            yield options.measure(line, {OURS: partial(measure, core, options.scaled(NUM_STEPS), line)})


def main() -> None:
    options = read_options(__doc__, LINES)
    core = start(options)
    report = options.report("structured")
    for line in lines(options, core):
        report.add(line, METRICS)
    report.finish()
    core.executor.shutdown()


if __name__ == "__main__":
    main()
