"""What each format makes a grammar of: xgrammar takes it, and the format's own parser reads what it allows."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_engine.worker.grammar_compiler import GrammarCompiler
from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.formats import TOOL_FORMATS
from stoker_gateway.tools.json_list import JSON_LIST
from stoker_gateway.tools.parts import CallArguments, CallBegin
from stoker_gateway.tools.structural_tag import CallCount, structural_tag, with_tokens

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = [CallForm("log_reading", SCHEMA), CallForm("get_time", {"type": "object", "properties": {}, "additionalProperties": False})]
DS = "<｜tool▁call▁begin｜>"
TEXTS = {
    "hermes": (
        '<tool_call>\n{"name": "log_reading", "arguments": {"n": 1}}\n</tool_call>',
        '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
        "",
    ),
    "llama3_json": ('{"name": "log_reading", "parameters": {"n": 1}}', '; {"name": "get_time", "parameters": {}}', ""),
    "mistral": ('[TOOL_CALLS][{"name": "log_reading", "arguments": {"n": 1}}', ', {"name": "get_time", "arguments": {}}', "]"),
    "mistral_v11": ('[TOOL_CALLS]log_reading[ARGS]{"n": 1}', "[TOOL_CALLS]get_time[ARGS]{}", ""),
    "deepseek_v3": (
        f'<｜tool▁calls▁begin｜>{DS}function<｜tool▁sep｜>log_reading\n```json\n{{"n": 1}}\n```<｜tool▁call▁end｜>',
        f"\n{DS}function<｜tool▁sep｜>get_time\n```json\n{{}}\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek_v31": (
        f'<｜tool▁calls▁begin｜>{DS}log_reading<｜tool▁sep｜>{{"n": 1}}<｜tool▁call▁end｜>',
        f"{DS}get_time<｜tool▁sep｜>{{}}<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "harmony": (
        '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.log_reading <|constrain|>json<|message|>{"n": 1}<|call|>',
        "",
        "",
    ),
    "json_list": ('[{"name": "log_reading", "parameters": {"n": 1}}', ', {"name": "get_time", "parameters": {}}', "]"),
}
FORMATS = [TOOL_FORMATS.get(name, JSON_LIST) for name in TEXTS]

Accepts = Callable[[str, list[int]], bool]


@pytest.fixture(scope="module")
def marked(marked_model: Path) -> Tokenizer:
    return load_tokenizer(marked_model)


@pytest.fixture(scope="module")
def accepts(marked_model: Path, marked: Tokenizer) -> Accepts:
    """Whether an answer of these tokens has the form of the tag, to its end."""
    import xgrammar

    compiler = GrammarCompiler(marked_model, marked.vocab_size)
    info = xgrammar.TokenizerInfo.deserialize_json(compiler.run("tokenizer", "").decode())

    def check(tag: str, token_ids: list[int]) -> bool:
        matcher = xgrammar.GrammarMatcher(xgrammar.CompiledGrammar.deserialize_json(compiler.run("structural_tag", tag).decode(), info))
        return all(matcher.accept_token(token_id) for token_id in token_ids) and matcher.is_completed()

    return check


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda tool_format: tool_format.name)
def test_a_forced_call_is_in_the_models_own_marks_and_is_read(tool_format: ToolFormat, marked: Tokenizer, accepts: Accepts) -> None:
    assert tool_format.force is not None
    first, second, end = TEXTS[tool_format.name]
    one, two, broken = (marked.encode_chat(text) for text in (first + end, first + second + end, first.replace("1}", '"x"}') + end))
    special = {mark: token_id for mark in tool_format.special_tokens for token_id in marked.encode_chat(mark) if token_id in marked.special_token_ids}
    single, several = (structural_tag(with_tokens(tool_format.force(TOOLS, count), special)) for count in CallCount)
    assert accepts(single, one) and accepts(several, one) and accepts(several, two)
    assert not accepts(several, broken) and not accepts(single, marked.encode_chat("I will not."))
    if second:
        assert not accepts(single, two)
    parts = tool_format.parser(() if tool_format.name != "llama3_json" else ("log_reading", "get_time")).feed(first + second + end)
    assert [part.name for part in parts if isinstance(part, CallBegin)] == (["log_reading", "get_time"] if second else ["log_reading"])
    assert "".join(part.text for part in parts if isinstance(part, CallArguments)) == ('{"n": 1}{}' if second else '{"n": 1}')


@pytest.mark.parametrize("tool_format", [one for one in FORMATS if one.allow], ids=lambda tool_format: tool_format.name)
def test_a_text_may_have_calls_that_follow_their_schemas(tool_format: ToolFormat, marked: Tokenizer, accepts: Accepts) -> None:
    assert tool_format.allow is not None
    first, second, end = TEXTS[tool_format.name]
    special = {mark: token_id for mark in tool_format.special_tokens for token_id in marked.encode_chat(mark) if token_id in marked.special_token_ids}
    one, many = (structural_tag(with_tokens(tool_format.allow(TOOLS, count), special)) for count in CallCount)
    answer = "<|channel|>final<|message|>I will not.<|return|>" if tool_format.name == "harmony" else "I will not, {}."
    assert accepts(many, marked.encode_chat(answer)) and accepts(one, marked.encode_chat(answer))
    text = "" if tool_format.name == "harmony" else "Sure. "
    assert accepts(many, marked.encode_chat(text + first + second + end)) and accepts(one, marked.encode_chat(text + first + end))
    assert not accepts(many, marked.encode_chat(text + first.replace("1}", '"x"}') + end))
    assert not second or not accepts(one, marked.encode_chat(text + first + second + end))


def test_a_tag_without_special_tokens_is_left_as_it_is() -> None:
    assert TOOL_FORMATS["hermes"].force is not None
    form = TOOL_FORMATS["hermes"].force(TOOLS, CallCount.MANY)
    assert with_tokens(form, {}) is form
    assert msgspec.json.decode(structural_tag(form))["format"] == form
