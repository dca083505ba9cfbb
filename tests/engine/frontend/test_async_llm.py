import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from stoker_engine.errors import ContextLengthError, EngineDeadError, EngineGenerateError, EngineNotReadyError, ParameterError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.outputs import RequestOutput
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.stats import IterationStats, SchedulerStats
from stoker_engine.testing import FakeEngineCore, Script, fake_engine_config
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

WaitUntil = Callable[..., Awaitable[None]]

DELTA = RequestOutputKind.DELTA


class Recorder:
    def __init__(self) -> None:
        self.scheduler_stats = SchedulerStats()
        self.iterations: list[IterationStats] = []

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        if scheduler_stats is not None:
            self.scheduler_stats = scheduler_stats
        self.iterations.append(iteration_stats)


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def llm(socket_dir: str, tokenizer: Tokenizer, recorder: Recorder) -> AsyncIterator[AsyncLLM]:
    llm = AsyncLLM(ClientConfig(socket_dir), tokenizer, [recorder])
    await llm.start()
    yield llm
    await llm.shutdown()


def options(request_id: str = "external") -> RequestOptions:
    return RequestOptions(request_id=request_id)


async def collect(llm: AsyncLLM, params: SamplingParams, prompt: str | list[int] = "Hello", request_id: str = "external") -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params, options(request_id))]


@pytest.mark.property("P51")
async def test_deltas_join_to_the_text_of_the_reply(socket_dir: str, llm: AsyncLLM, tokenizer: Tokenizer, wait_until: WaitUntil) -> None:
    reply = "The answer is 42 — 漢字 and 😀."
    script = Script(default_reply=[*tokenizer.encode(reply), tokenizer.eos_token_ids[0]])
    with FakeEngineCore(fake_engine_config(socket_dir), script):
        await wait_until(lambda: llm.is_ready)
        outputs = await collect(llm, SamplingParams(temperature=0, max_tokens=64, output_kind=DELTA))
    assert "".join(output.outputs[0].text for output in outputs) == reply
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].outputs[0].finish_reason is FinishReason.STOP
    assert outputs[0].request_id == "external"


async def test_a_stop_string_ends_it_in_the_engine_too(socket_dir: str, llm: AsyncLLM, tokenizer: Tokenizer, wait_until: WaitUntil, recorder: Recorder) -> None:
    script = Script(default_reply=tokenizer.encode("one two three four") * 100, step_seconds=0.002)
    with FakeEngineCore(fake_engine_config(socket_dir), script):
        await wait_until(lambda: llm.is_ready)
        outputs = await collect(llm, SamplingParams(temperature=0, max_tokens=4000, stop=["three"]))
        assert outputs[-1].outputs[0].text == "one two "
        assert outputs[-1].outputs[0].stop_reason == "three"
        await collect(llm, SamplingParams(temperature=0, max_tokens=1))
        await wait_until(lambda: recorder.scheduler_stats.num_running == 0 and recorder.scheduler_stats.kv_cache_usage == 0.0)


@pytest.mark.property("P48")
async def test_each_of_n_choices_finishes_once(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100, 101])):
        await wait_until(lambda: llm.is_ready)
        outputs = await collect(llm, SamplingParams(n=3, max_tokens=5, output_kind=RequestOutputKind.FINAL_ONLY))
    assert [len(output.outputs) for output in outputs] == [3]
    assert [completion.index for completion in outputs[0].outputs] == [0, 1, 2]
    assert outputs[0].num_output_tokens == 15


@pytest.mark.case("C077")
@pytest.mark.parametrize("n", [1, 3])
async def test_closing_the_generator_aborts_in_the_engine(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil, recorder: Recorder, n: int) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.002)):
        await wait_until(lambda: llm.is_ready)
        generator = llm.generate("Hello", SamplingParams(n=n, max_tokens=5000, ignore_eos=True, output_kind=DELTA), options())
        await anext(generator)
        await generator.aclose()
        assert llm.num_requests == 0
        await collect(llm, SamplingParams(temperature=0, max_tokens=1))
        await wait_until(lambda: recorder.scheduler_stats.num_running == 0 and recorder.scheduler_stats.kv_cache_usage == 0.0, 1.0)


@pytest.mark.property("P38")
@pytest.mark.fault("D2")
async def test_a_cancelled_consumer_leaves_nothing_behind(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil, recorder: Recorder) -> None:
    params = SamplingParams(n=2, max_tokens=5000, ignore_eos=True)
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.001)):
        await wait_until(lambda: llm.is_ready)
        for turns in range(12):  # cancelled before, between and after registration and sending
            task = asyncio.create_task(collect(llm, params))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert llm.num_requests == 0
        await collect(llm, SamplingParams(temperature=0, max_tokens=1))
        await wait_until(lambda: recorder.scheduler_stats.num_running + recorder.scheduler_stats.num_waiting == 0, 1.0)


@pytest.mark.property("P34", "P55")
async def test_the_death_of_the_engine_reaches_every_consumer_and_its_successor_serves(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil) -> None:
    with pytest.raises(EngineNotReadyError, match="no engine has connected yet"):
        await collect(llm, SamplingParams())
    params = SamplingParams(max_tokens=5000, ignore_eos=True, output_kind=DELTA)
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.002)) as engine:
        await wait_until(lambda: llm.is_ready)
        tasks = [asyncio.create_task(collect(llm, params)) for _ in range(5)]
        await wait_until(lambda: llm.num_requests == 5)
        engine.process.kill()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1.0)
    assert all(isinstance(result, EngineDeadError) for result in results)
    assert llm.num_requests == 0
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100])):
        await wait_until(lambda: llm.is_ready)
        assert (await collect(llm, SamplingParams(max_tokens=2)))[-1].outputs[0].token_ids == [100, 100]


async def test_a_request_that_fails_in_the_engine_fails_alone(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100], failing_token_id=9)):
        await wait_until(lambda: llm.is_ready)
        good, bad = await asyncio.gather(
            collect(llm, SamplingParams(max_tokens=3), [1, 2]), collect(llm, SamplingParams(max_tokens=3), [1, 9]), return_exceptions=True
        )
    assert isinstance(bad, EngineGenerateError)
    assert isinstance(good, list)
    assert good[-1].outputs[0].token_ids == [100, 100, 100]


async def test_abort_all_ends_every_request_with_abort(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil) -> None:
    params = SamplingParams(max_tokens=5000, ignore_eos=True, output_kind=DELTA)
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.002)):
        await wait_until(lambda: llm.is_ready)
        tasks = [asyncio.create_task(collect(llm, params)) for _ in range(3)]
        await wait_until(lambda: llm.num_requests == 3)
        await llm.abort_all()
        results = await asyncio.gather(*tasks)
    assert [result[-1].outputs[0].finish_reason for result in results] == [FinishReason.ABORT] * 3


@pytest.mark.property("P49")
@pytest.mark.fault("D1")
async def test_two_requests_may_share_an_external_id_and_end_apart(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100], step_seconds=0.002)):
        await wait_until(lambda: llm.is_ready)
        first = llm.generate("Hello", SamplingParams(max_tokens=4000, ignore_eos=True, output_kind=DELTA), options("same"))
        await anext(first)
        second = asyncio.create_task(collect(llm, SamplingParams(max_tokens=50), request_id="same"))
        await wait_until(lambda: llm.num_requests == 2)
        await first.aclose()
        assert len((await second)[-1].outputs[0].token_ids) == 50


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([1] * 40, SamplingParams(max_tokens=1), ContextLengthError),
        ([1] * 20, SamplingParams(max_tokens=13), ContextLengthError),
        ([49152], SamplingParams(max_tokens=1), ParameterError),
        ([], SamplingParams(max_tokens=1), ParameterError),
        ([1], SamplingParams(max_tokens=1, logprobs=21), ParameterError),
        ([1], SamplingParams(max_tokens=1, logit_bias={49152: 1.0}), ParameterError),
    ],
)
async def test_a_bad_request_never_reaches_the_engine(
    socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil, prompt: list[int], params: SamplingParams, error: type[Exception]
) -> None:
    with FakeEngineCore(msgspec.structs.replace(fake_engine_config(socket_dir), max_model_len=32), Script(default_reply=[100])):
        await wait_until(lambda: llm.is_ready)
        with pytest.raises(error):
            await collect(llm, params, prompt)
        assert llm.num_requests == 0
        assert len(await collect(llm, SamplingParams(max_tokens=1), [1])) == 1


async def test_stat_loggers_see_every_token(socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil, recorder: Recorder) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100])):
        await wait_until(lambda: llm.is_ready)
        await collect(llm, SamplingParams(max_tokens=7), [1, 2, 3])
    assert sum(iteration.num_generation_tokens for iteration in recorder.iterations) == 7
    assert sum(iteration.num_prompt_tokens for iteration in recorder.iterations) == 3
    assert [stats.finish_reason for iteration in recorder.iterations for stats in iteration.finished_requests] == [FinishReason.LENGTH]


async def test_shutdown_fails_what_is_live_and_frees_the_directory(socket_dir: str, llm: AsyncLLM, tokenizer: Tokenizer, wait_until: WaitUntil) -> None:
    with FakeEngineCore(fake_engine_config(socket_dir), Script(step_seconds=0.002)):
        await wait_until(lambda: llm.is_ready)
        task = asyncio.create_task(collect(llm, SamplingParams(max_tokens=5000, ignore_eos=True)))
        await wait_until(lambda: llm.num_requests == 1)
        await llm.shutdown()
        with pytest.raises(EngineDeadError):
            await task
        successor = AsyncLLM(ClientConfig(socket_dir), tokenizer, [])
        await successor.start()
        await wait_until(lambda: successor.is_ready)
        await successor.shutdown()
    assert sorted(path.name for path in Path(socket_dir).glob("*.sock")) == []


@pytest.mark.property("P55")
async def test_a_fault_in_the_output_handler_fails_every_request_and_is_told(
    socket_dir: str, llm: AsyncLLM, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise ZeroDivisionError

    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100])):
        await wait_until(lambda: llm.is_ready)
        monkeypatch.setattr(OutputProcessor, "process_some", fail)
        with pytest.raises(EngineDeadError):
            await collect(llm, SamplingParams(max_tokens=500, ignore_eos=True))
        assert isinstance(await asyncio.wait_for(llm.failure(), 1.0), ZeroDivisionError)
        assert not llm.is_ready
        with pytest.raises(EngineDeadError, match="the api failed"):
            await llm.check_health()


async def test_a_stat_logger_that_fails_fails_nobody(
    socket_dir: str, tokenizer: Tokenizer, recorder: Recorder, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty:
        def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
            raise ZeroDivisionError

    llm = AsyncLLM(ClientConfig(socket_dir), tokenizer, [Faulty(), recorder])
    await llm.start()
    with FakeEngineCore(fake_engine_config(socket_dir), Script(default_reply=[100])):
        await wait_until(lambda: llm.is_ready)
        outputs = await collect(llm, SamplingParams(max_tokens=50, ignore_eos=True))
    assert outputs[-1].num_output_tokens == sum(stats.num_generation_tokens for stats in recorder.iterations) == 50
    assert [record.getMessage() for record in caplog.records if "Faulty" in record.getMessage()] == ["a Faulty failed; its later failures are not logged"]
    await llm.shutdown()
