import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker_engine.config import EngineConfig
from stoker_engine.core.engine_core import EngineCore
from stoker_engine.executor import uniproc
from stoker_engine.executor.uniproc import UniprocExecutor
from stoker_engine.protocol import EngineCoreRequest, EnginePhase, LogprobsLists
from stoker_engine.sampling_params import SamplingParams

MODES: list[dict[str, Any]] = [
    {},
    {"max_concurrent_batches": 2},
    {"max_concurrent_batches": 4},
    {"async_scheduling": True},
    {"async_scheduling": True, "max_concurrent_batches": 3},
]


class Unreported:
    def report_phase(self, phase: EnginePhase, progress: float) -> None:
        """Nobody listens."""


def random_request(rng: random.Random, number: int) -> EngineCoreRequest:
    params = SamplingParams(
        temperature=rng.choice((0.0, 0.8)),
        top_p=rng.choice((1.0, 0.9)),
        seed=number,
        max_tokens=rng.randint(1, 20),
        min_tokens=rng.choice((0, 1)),
        repetition_penalty=rng.choice((1.0, 1.3)),
        presence_penalty=rng.choice((0.0, 0.5)),
        logprobs=rng.choice((None, 2)),
        prompt_logprobs=rng.choice((None, None, 1)),
        stop_token_ids=rng.sample(range(320), 20),
    )
    return EngineCoreRequest(f"r{number}", [7, 8, 9, *rng.choices(range(320), k=rng.randint(1, 40))], params, float(number), priority=rng.randrange(2))


def answers(config: EngineConfig, requests: list[EngineCoreRequest]) -> dict[str, list[Any]]:
    """By request: token ids, log probabilities of the output and of the prompt, finish reason."""
    executor = UniprocExecutor(config)
    core = EngineCore(config, executor, Unreported())
    found: dict[str, list[Any]] = {request.request_id: [[], [], None, None] for request in requests}
    left = list(requests)
    while left or core.has_work():
        if left:
            core.add_request(core.preprocess(left.pop(0)))
        for message in core.step().outputs.values():
            for output in message.outputs:
                answer = found[output.request_id]
                answer[0] += output.new_token_ids
                answer[1] += flat(output.new_logprobs)
                answer[2] = answer[2] or output.new_prompt_logprobs
                answer[3] = output.finish_reason
    executor.shutdown()
    return found


def flat(logprobs: LogprobsLists | None) -> list[float]:
    return [] if logprobs is None else [round(value, 4) for row in logprobs.logprobs for value in row]


@pytest.mark.property("P40", "P41", "P44")
def test_every_way_of_stepping_gives_the_same_tokens_of_a_real_model(make_config: Callable[..., EngineConfig]) -> None:
    rng = random.Random(5)
    requests = [random_request(rng, number) for number in range(14)]
    settings = {"num_blocks_override": 17, "max_model_len": 96, "max_num_seqs": 6, "max_num_batched_tokens": 24}
    plain, *others = [answers(make_config(**settings, **mode), requests) for mode in MODES]
    for other in others:
        for request_id, (token_ids, logprobs, prompt_logprobs, finish_reason) in plain.items():
            assert other[request_id][0] == token_ids
            assert other[request_id][1] == pytest.approx(logprobs, abs=1e-3)
            assert other[request_id][3] is finish_reason
            assert (other[request_id][2] is None) == (prompt_logprobs is None)
            if prompt_logprobs is not None:
                assert (other[request_id][2].token_ids[:, 0] == prompt_logprobs.token_ids[:, 0]).all()
                assert other[request_id][2].logprobs == pytest.approx(prompt_logprobs.logprobs, abs=1e-3)


@pytest.mark.parametrize(("settings", "has_own_thread"), [({}, False), ({"max_concurrent_batches": 2}, True), ({"async_scheduling": True}, True)])
def test_all_of_the_workers_calls_are_made_on_one_thread_with_the_set_number_of_threads(
    make_config: Callable[..., EngineConfig], monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], *, has_own_thread: bool
) -> None:
    callers: set[tuple[threading.Thread, int]] = set()

    class WatchedWorker(uniproc.Worker):
        def load_model(self, on_progress: Callable[[float], None]) -> Any:
            description = super().load_model(on_progress)
            callers.add((threading.current_thread(), torch.get_num_threads()))
            return description

        def profile(self) -> int:
            callers.add((threading.current_thread(), torch.get_num_threads()))
            return 1 << 20

        def execute_model(self, scheduler_output: Any) -> Any:
            callers.add((threading.current_thread(), torch.get_num_threads()))
            return super().execute_model(scheduler_output)

    monkeypatch.setattr(uniproc, "Worker", WatchedWorker)
    config = make_config(num_threads=2, **settings)
    executor = UniprocExecutor(config)
    core = EngineCore(config, executor, Unreported())
    core.add_request(core.preprocess(EngineCoreRequest("a", [1, 2, 3], SamplingParams(max_tokens=2), 0.0)))
    while core.has_work():
        core.step()
    executor.shutdown()
    ((thread, num_threads),) = callers
    assert (thread is not threading.current_thread()) == has_own_thread
    assert num_threads == 2
    assert not any(thread.name == "worker" for thread in threading.enumerate())


def test_a_shutdown_during_the_load_ends_the_load(make_config: Callable[..., EngineConfig]) -> None:
    executor = UniprocExecutor(make_config(async_scheduling=True))
    closer = threading.Thread(target=executor.shutdown)

    def on_progress(share: float) -> None:
        if not closer.is_alive():
            closer.start()
            while not executor.is_shut_down:
                pass

    with pytest.raises(RuntimeError, match="shut down while it loaded"):
        executor.load_model(on_progress)
    closer.join()
    assert not any(thread.name == "worker" for thread in threading.enumerate())


@pytest.mark.parametrize("settings", [{}, {"max_concurrent_batches": 2}])
def test_a_device_that_cannot_be_freed_is_told_from_whichever_thread(
    make_config: Callable[..., EngineConfig], monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    class StuckWorker(uniproc.Worker):
        def shutdown(self) -> None:
            raise RuntimeError("the device does not answer")

    monkeypatch.setattr(uniproc, "Worker", StuckWorker)
    with pytest.raises(RuntimeError, match="does not answer"):
        UniprocExecutor(make_config(**settings)).shutdown()


def test_steps_under_way_at_the_end_do_not_keep_the_worker(make_config: Callable[..., EngineConfig]) -> None:
    config = make_config(async_scheduling=True, max_concurrent_batches=4, num_blocks_override=17, max_num_seqs=4, max_num_batched_tokens=32)
    executor = UniprocExecutor(config)
    core = EngineCore(config, executor, Unreported())
    core.add_request(core.preprocess(EngineCoreRequest("a", [1, 2, 3], SamplingParams(max_tokens=50), 0.0)))
    for _ in range(3):
        core.step()
    core.abort_all_requests()
    executor.shutdown()
    executor.shutdown()
    assert not any(thread.name == "worker" for thread in threading.enumerate())
