from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.models.loader import LoadedModel, load_model
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.kv_cache import allocate_kv_cache
from stoker_engine.worker.model_runner import ModelRunner

BLOCK_SIZE = 8
NUM_BLOCKS = 600


@pytest.fixture
def make_config(make_model_directory) -> Callable[..., EngineConfig]:
    def make(*, vocab_size: int = 320, num_token_ids: int = 320, **settings: object) -> EngineConfig:
        model = ModelConfig(uri=f"file://{make_model_directory(vocab_size, num_token_ids)}")
        return EngineConfig(**({"model": model, "block_size": BLOCK_SIZE, "device": "cpu", "dtype": "float32", "num_threads": 1} | settings))

    return make


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    # Tiny tensors gain nothing from a second thread, and wait for it where the machine is busy.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def loaded(make_model_directory) -> LoadedModel:
    path = make_model_directory(320, 320)
    config = EngineConfig(model=ModelConfig(uri=f"file://{path}"), block_size=BLOCK_SIZE, dtype="float32")
    return load_model(path, config, torch.device("cpu"), lambda share: None)


@dataclass
class DrivenRequest:
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    eos: list[int]
    block_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    is_known: bool = False

    @property
    def output(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]


class Driver:
    """A scheduler by hand: it keeps the books that the runner relies on, and the test decides each step."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.kv_caches = allocate_kv_cache(loaded.ops, loaded.kv_cache_shape, NUM_BLOCKS, loaded.dtype, loaded.model.device)
        self.runner = ModelRunner(loaded, loaded.vocab_size, 0, self.kv_caches)
        self.requests: dict[str, DrivenRequest] = {}
        self.free_blocks = list(range(1, NUM_BLOCKS))
        self._finished: list[str] = []
        self._preempted: list[str] = []

    def add(
        self, request_id: str, prompt: Sequence[int], params: SamplingParams, *, eos: Sequence[int] = (), cached_blocks: Sequence[int] = ()
    ) -> DrivenRequest:
        request = DrivenRequest(list(prompt), len(prompt), params, list(eos), list(cached_blocks), len(cached_blocks) * BLOCK_SIZE)
        self.requests[request_id] = request
        return request

    def step(self, scheduled: dict[str, int]) -> ModelRunnerOutput:
        new, cached = [], CachedRequestData()
        for request_id, number in scheduled.items():
            request = self.requests[request_id]
            added = [self.free_blocks.pop() for _ in range(-(-(request.num_computed + number) // BLOCK_SIZE) - len(request.block_ids))]
            request.block_ids.extend(added)
            if request.is_known:
                cached.request_ids.append(request_id)
                cached.new_block_ids.append(added)
                cached.num_computed_tokens.append(request.num_computed)
            else:
                new.append(
                    NewRequestData(
                        request_id,
                        list(request.token_ids),
                        request.num_prompt_tokens,
                        request.params,
                        request.eos,
                        [],
                        list(request.block_ids),
                        request.num_computed,
                    )
                )
            request.is_known = True
            request.num_computed += number
        output = self.run_step(SchedulerOutput(new, cached, scheduled, sum(scheduled.values()), self._finished, self._preempted))
        self._finished, self._preempted = [], []
        for request_id, token_ids in output.sampled_token_ids.items():
            self.requests[request_id].token_ids.extend(token_ids)
        return output

    def run_step(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        return self.runner.execute_model(scheduler_output) or self.runner.sample_tokens(None)

    def prefill(self, request_id: str) -> ModelRunnerOutput:
        request = self.requests[request_id]
        return self.step({request_id: len(request.token_ids) - request.num_computed})

    def decode(self, num_steps: int, request_ids: Sequence[str] | None = None) -> list[ModelRunnerOutput]:
        """Every request, computed up to its last token, goes on by a token a step."""
        return [self.step(dict.fromkeys(self.requests if request_ids is None else request_ids, 1)) for _ in range(num_steps)]

    def finish(self, request_id: str) -> None:
        self._release(self.requests.pop(request_id))
        self._finished.append(request_id)

    def preempt(self, request_id: str) -> None:
        request = self.requests[request_id]
        self._release(request)
        request.is_known, request.num_computed = False, 0
        self._preempted.append(request_id)

    def poison_free_blocks(self) -> None:
        for kv_cache in self.kv_caches:
            kv_cache[self.free_blocks] = torch.nan

    def _release(self, request: DrivenRequest) -> None:
        self.free_blocks.extend(request.block_ids)
        request.block_ids = []


@pytest.fixture
def driver_type() -> type[Driver]:
    return Driver


@pytest.fixture
def make_driver(loaded) -> Callable[[], Driver]:
    return lambda: Driver(loaded)


@pytest.fixture
def alone(make_driver) -> Callable[..., list[int]]:
    """The output of a request that has the engine to itself and prefills in one step."""

    def run(prompt: Sequence[int], params: SamplingParams, num_tokens: int, *, eos: Sequence[int] = ()) -> list[int]:
        driver = make_driver()
        request = driver.add("alone", prompt, params, eos=eos)
        driver.prefill("alone")
        driver.decode(num_tokens - 1)
        return request.output

    return run
