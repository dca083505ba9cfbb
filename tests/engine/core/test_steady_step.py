"""What a steady decode step costs beside the arithmetic, in numbers that no clock has a part in: C calls, torch dispatches, Python calls and memory."""

import gc
import json
import shutil
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.executor.uniproc import UniprocExecutor
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams
from stoker_kernels.cpu.library import load_library

GREEDY = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
RANDOM = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=200, ignore_eos=True)

MAX_CALLS = 200
"""Of Python functions and built-in ones, in a step with one request: 187 when this was written."""
MAX_CALLS_PER_REQUEST = 16
"""More for each further request: 15.9, all of the scheduler's. The worker has no call for each."""
MAX_STEP_BYTES = 12_000
"""At once, in objects and arrays, in a step with one request: 7 kB. A row of the tiny model's logits alone would be 1.3 kB, each array of a step 0.1 kB."""
MAX_STEP_BYTES_PER_REQUEST = 400
"""More for each further request, 300: most of it is a request's output, and the list of its tokens when it grows."""
MAX_KEPT_BYTES_PER_TOKEN = 60
"""What a step leaves behind for each request: 43, its token."""
MAX_KEPT_BYTES = 1000
"""What eight steps leave behind beside: 500, the measurement's own numbers."""


class CountingLibrary:
    """The C++ library; `calls` are the functions called."""

    def __init__(self, library: Any) -> None:
        self.calls: list[str] = []
        self._library = library

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._library, name)


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Unreported:
    def report_phase(self, *_: Any, **__: Any) -> None:
        return


def count_calls(step: Callable[[], object]) -> Counter[str]:
    """By name."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[function.__qualname__] += 1

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture(scope="module")
def model_directory(make_model_directory: Callable[[int, int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads of 16: the C++ ops take no smaller ones."""
    directory = tmp_path_factory.mktemp("heads-of-16")
    shutil.copytree(make_model_directory(320, 320), directory, dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2, "num_key_value_heads": 1}))
    return directory


@pytest.fixture
def start(model_directory: Path) -> Iterator[Callable[[int, SamplingParams], EngineCore]]:
    """An engine with so many requests, each a few tokens past its prompt and none at the end of a block."""
    cores: list[EngineCore] = []

    def make(num_requests: int, params: SamplingParams) -> EngineCore:
        config = EngineConfig(
            model=ModelConfig(uri=f"file://{model_directory}"),
            dtype="bfloat16",
            block_size=16,
            num_threads=1,
            max_num_seqs=32,
            num_blocks_override=600,
        )
        core = EngineCore(config, UniprocExecutor(config), Unreported())
        cores.append(core)
        for index in range(num_requests):
            prompt = [(7 * index + position) % 320 for position in range(17)]
            core.add_request(core.preprocess(EngineCoreRequest(f"request-{index}", prompt, params, arrival_time=0.0)))
        for _ in range(4):
            core.step()
        assert core.scheduler.make_stats().num_running == num_requests
        return core

    yield make
    for core in cores:
        core.executor.shutdown()


Start = Callable[[int, SamplingParams], EngineCore]


@pytest.mark.parametrize("params", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("num_requests", [1, 32])
def test_a_steady_step_is_three_calls_of_the_library(start: Start, num_requests: int, params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries: list[CountingLibrary] = []

    def load(instruction_set: str) -> CountingLibrary:
        libraries.append(CountingLibrary(load_library(instruction_set)))
        return libraries[-1]

    monkeypatch.setattr("stoker_kernels.cpu.ops.load_library", load)
    core = start(num_requests, params)
    (library,) = libraries
    library.calls.clear()
    for _ in range(5):
        core.step()
    assert library.calls == 5 * ["stoker_run_step", "stoker_linear_to_floats", "stoker_sample"]


@pytest.mark.parametrize("params", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("num_requests", [1, 32])
def test_a_steady_step_asks_torch_for_nothing(start: Start, num_requests: int, params: SamplingParams) -> None:
    core = start(num_requests, params)
    with Dispatches() as dispatches:
        core.step()
    assert dispatches.names == []


@pytest.mark.parametrize("params", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_the_calls_of_a_steady_step_are_bounded_by_a_constant_and_little_for_each_request(start: Start, params: SamplingParams) -> None:
    one, many = (count_calls(start(number, params).step) for number in (1, 32))
    assert one.total() <= MAX_CALLS, one
    assert many.total() - one.total() <= 31 * MAX_CALLS_PER_REQUEST, many.most_common(20)


@pytest.mark.parametrize("num_requests", [1, 32])
def test_a_steady_step_takes_no_memory_but_for_its_outputs(start: Start, num_requests: int) -> None:
    core = start(num_requests, GREEDY)
    tracemalloc.start()
    core.step()
    gc.collect()
    gc.disable()
    try:
        peaks, before = [], tracemalloc.get_traced_memory()[0]
        for _ in range(8):
            tracemalloc.reset_peak()
            current = tracemalloc.get_traced_memory()[0]
            core.step()
            peaks.append(tracemalloc.get_traced_memory()[1] - current)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        gc.enable()
        tracemalloc.stop()
    assert max(peaks) <= MAX_STEP_BYTES + (num_requests - 1) * MAX_STEP_BYTES_PER_REQUEST
    assert kept <= MAX_KEPT_BYTES + 8 * num_requests * MAX_KEPT_BYTES_PER_TOKEN
