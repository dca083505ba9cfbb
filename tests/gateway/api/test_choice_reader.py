"""Tokens → text → deltas, by the plan of a chat: what a model with special tokens for its marks wrote, whatever the outputs' sizes."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.detokenizer import Detokenizer
from stoker_engine.outputs import CompletionOutput
from stoker_engine.sampling_params import SamplingParams, StructuredOutputs
from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_gateway.api.chat_delta import chat_delta, whole_message
from stoker_gateway.api.chat_format import ChatFormat
from stoker_gateway.api.chat_plan import ChatPlan, plan_chat
from stoker_gateway.api.choice_reader import ChoiceReader
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.protocol import ChatDelta, ChatMessageResponse
from stoker_gateway.openai.request import ChatCompletionRequest
from stoker_gateway.reasoning.think import THINK
from stoker_gateway.tools.formats import TOOL_FORMATS
from stoker_gateway.tools.parts import Content
from stoker_gateway.tools.structural_tag import json_by

TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}}
HARMONY = ChatFormat(TOOL_FORMATS["harmony"], None, "tools")
HERMES = ChatFormat(TOOL_FORMATS["hermes"], THINK, "tools")
NO_FORMAT = ChatFormat(None, None, "tools")
CALL = '<|channel|>analysis<|message|>Which END?<|end|><|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"zone": "Å"}'
FINAL = "<|channel|>analysis<|message|>END.<|end|><|start|>assistant<|channel|>final<|message|>It is 😀 END noon"


@pytest.fixture(scope="module")
def marked(marked_model: Path) -> Tokenizer:
    return load_tokenizer(marked_model)


def plan(tokenizer: Tokenizer, chat_format: ChatFormat, prompt: str = "", params: SamplingParams | None = None, **fields: Any) -> ChatPlan:
    request = msgspec.convert({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}, ChatCompletionRequest)
    return plan_chat(chat_format, tokenizer, request, prompt, params or SamplingParams(max_tokens=1000))


def read(tokenizer: Tokenizer, chat: ChatPlan, text: str, size: int) -> tuple[list[ChatDelta], str | None]:
    """The deltas of an answer whose outputs have `size` tokens, and its finish reason."""
    detokenizer, reader = Detokenizer(tokenizer, [0], chat.params), ChoiceReader(chat)
    token_ids = tokenizer.encode_chat(text)
    deltas = []
    stop = None
    for start in range(0, len(token_ids), size):
        stop = detokenizer.append(token_ids[start : start + size])
        if stop is not None:
            break
        deltas.append(chat_delta(reader.parts(CompletionOutput(0, detokenizer.take_text(), []))))
    if stop is None:
        detokenizer.finish()
    last = CompletionOutput(0, detokenizer.take_text(), [], finish_reason=FinishReason.STOP, stop_reason=stop)
    deltas.append(chat_delta(reader.parts(last)))
    return deltas, reader.finish_name(last)


def joined(deltas: list[ChatDelta]) -> dict[str, Any]:
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for delta in map(msgspec.to_builtins, deltas):
        message["content"] += delta.get("content", "")
        message["reasoning"] += delta.get("reasoning", "")
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["calls"]):
                message["calls"].append([call["function"]["name"], ""])
            message["calls"][call["index"]][1] += call["function"]["arguments"]
    return message


@pytest.mark.parametrize(
    ("text", "fields", "expected", "finish"),
    [
        (CALL, {"tools": [TOOL]}, {"content": "", "reasoning": "Which END?", "calls": [["get_time", '{"zone": "Å"}']]}, "tool_calls"),
        (CALL, {}, {"content": '{"zone": "Å"}', "reasoning": "Which END?", "calls": []}, "stop"),
        (FINAL, {}, {"content": "It is 😀 END noon", "reasoning": "END.", "calls": []}, "stop"),
    ],
)
def test_channels_are_read_though_special_tokens_are_skipped(marked: Tokenizer, text: str, fields: dict[str, Any], expected: object, finish: str) -> None:
    for size in (1, 2, 3, 7, 1000):
        deltas, name = read(marked, plan(marked, HARMONY, **fields), text, size)
        assert (joined(deltas), name) == (expected, finish)


@pytest.mark.fault("G5")
def test_a_stop_string_of_harmony_counts_in_the_final_channel(marked: Tokenizer) -> None:
    for size in (1, 3, 1000):
        deltas, name = read(marked, plan(marked, HARMONY, params=SamplingParams(stop=["END"])), FINAL, size)
        assert joined(deltas)["content"].rstrip() == "It is 😀" and name == "stop"


def test_a_whole_message_has_what_the_deltas_have(marked: Tokenizer) -> None:
    (first, last), _ = read(marked, plan(marked, HARMONY, tools=[TOOL]), CALL, 1000)
    message = whole_message(first)
    assert msgspec.to_builtins(last) == {}
    assert (message.content, message.reasoning, message.reasoning_content) == (None, "Which END?", "Which END?")
    assert isinstance(message.tool_calls, list) and message.tool_calls[0].function.arguments == '{"zone": "Å"}'
    assert whole_message(ChatDelta()) == ChatMessageResponse("")


@pytest.mark.parametrize(
    ("prompt", "text", "is_counted"),
    [
        ("user", "<think>\n\n</think>\n\nHi", True),
        ("user<think>\n", "\n</think>Hi", True),
        ("user<think>\n", "</think>Hi", True),
        ("user", "Hi </think>", False),
        ("user<think></think>", "Hi", False),
    ],
)
def test_reasoning_of_blanks_alone_has_tokens_though_it_shows_no_text(marked: Tokenizer, prompt: str, text: str, is_counted: bool) -> None:  # noqa: FBT001
    token_ids = marked.encode_chat(text)
    (end,) = marked.encode_chat("</think>")
    for size in (1, 2, 1000):
        chat = plan(marked, HERMES, prompt, SamplingParams(skip_special_tokens=False))
        detokenizer, reader = Detokenizer(marked, [0], chat.params), ChoiceReader(chat)
        for start in range(0, len(token_ids), size):
            some = token_ids[start : start + size]
            detokenizer.append(some)
            assert all(isinstance(part, Content) for part in reader.parts(CompletionOutput(0, detokenizer.take_text(), some)))
        assert (reader.num_reasoning_tokens or 0) == (token_ids.index(end) + 1 if is_counted else 0)


def form_of(chat: ChatPlan) -> tuple[str, list[int], str]:
    wanted = chat.params.structured_outputs
    assert wanted is not None
    return wanted.kind, wanted.after_token_ids, wanted.parameter


def test_a_required_call_has_a_form_that_begins_after_the_reasoning(marked: Tokenizer) -> None:
    end = marked.encode_chat("</think>")
    required = {"tools": [TOOL], "tool_choice": "required"}
    assert form_of(plan(marked, HERMES, "user", **required)) == ("structural_tag", end, "tools")
    assert form_of(plan(marked, HERMES, "user<think>\n", **required)) == ("structural_tag", end, "tools")
    assert form_of(plan(marked, HERMES, "user<think>\n\n</think>\n\n", **required)) == ("structural_tag", [], "tools")
    assert form_of(plan(marked, HARMONY, **required)) == ("structural_tag", [], "tools")
    assert form_of(plan(marked, NO_FORMAT, **required)) == ("structural_tag", [], "tools")
    assert plan(marked, HERMES, tools=[TOOL]).params.structured_outputs is None


def test_a_form_begins_at_once_in_an_answer_that_does_not_begin_with_reasoning(marked: Tokenizer) -> None:
    def start_token_id(chat_format: ChatFormat, prompt: str) -> int | None:
        form = plan(marked, chat_format, prompt, tools=[TOOL], tool_choice="required").params.structured_outputs
        assert form is not None
        return form.start_token_id

    (start,) = marked.encode_chat("<think>")
    assert [start_token_id(HERMES, prompt) for prompt in ("user", "user<think>\n", "user<think></think>")] == [start, None, None]
    assert start_token_id(HARMONY, "user") is None


def test_strict_functions_hold_calls_to_their_schemas(marked: Tokenizer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    strict = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}
    chat = plan(marked, HERMES, tools=[TOOL, strict])
    assert form_of(chat) == ("structural_tag", marked.encode_chat("</think>"), "tools")
    assert chat.params.structured_outputs is not None
    form = json.loads(chat.params.structured_outputs.value)["format"]
    assert [tag["content"]["elements"][1] for tag in form["tags"]] == [json_by({"type": "object"}), json_by(schema)]
    with pytest.raises(ApiError, match="pythonic"):
        plan(marked, ChatFormat(TOOL_FORMATS["pythonic"], None, "tools"), tools=[strict])


def test_strict_functions_of_harmony_are_held_on_every_channel(marked: Tokenizer) -> None:
    strict = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
    assert form_of(plan(marked, HARMONY, tools=[TOOL, strict])) == ("structural_tag", [], "tools")


def test_a_form_without_a_token_to_wait_for_leaves_no_reasoning(smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)  # in which </think> is several tokens
    params = SamplingParams(structured_outputs=StructuredOutputs("json", "{}", parameter="response_format"))
    chat = plan(tokenizer, HERMES, "user<think>\n", params=params)
    deltas, _ = read(tokenizer, chat, '{"a": 1}', 1)
    assert (form_of(chat)[1], chat.params.reasoning, joined(deltas)["content"]) == ([], None, '{"a": 1}')
    required = plan(tokenizer, HERMES, "user<think>\n", tools=[TOOL], tool_choice="required")
    deltas, name = read(tokenizer, required, '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>', 1)
    assert (joined(deltas)["calls"], name) == ([["get_time", "{}"]], "tool_calls")
    strict = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}}
    deltas, _ = read(tokenizer, plan(tokenizer, HERMES, "user<think>\n", tools=[strict]), "Hm.</think>Well.", 1)
    assert joined(deltas) == {"content": "Well.", "reasoning": "Hm.", "calls": []}


def test_json_that_was_asked_for_begins_after_the_reasoning_too(marked: Tokenizer) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputs("json", json.dumps({"type": "object"}), parameter="response_format"))
    assert form_of(plan(marked, HERMES, params=params)) == ("json", marked.encode_chat("</think>"), "response_format")
    assert form_of(plan(marked, HARMONY, params=params)) == ("json", marked.encode_chat("<|channel|>final<|message|>"), "response_format")


def test_a_model_with_tools_may_answer_in_the_form_or_call(marked: Tokenizer) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputs("json", json.dumps({"type": "object"}), parameter="response_format"))
    chat = plan(marked, HERMES, params=params, tools=[TOOL])
    assert form_of(chat)[0] == "structural_tag"
    assert chat.params.structured_outputs is not None
    form = json.loads(chat.params.structured_outputs.value)["format"]
    assert form["type"] == "or" and form["elements"][0] == json_by({"type": "object"})


@pytest.mark.parametrize(
    ("chat_format", "fields", "kind", "param"),
    [
        (NO_FORMAT, {"tools": [TOOL]}, None, "tools"),
        (ChatFormat(TOOL_FORMATS["hermes"], None, "messages"), {"tools": [TOOL]}, None, "tools"),
        (HERMES, {"tools": [TOOL], "tool_choice": "required"}, "json", "tool_choice"),
        (HERMES, {"tools": [TOOL]}, "regex", "structured_outputs"),
        (ChatFormat(TOOL_FORMATS["pythonic"], None, "tools"), {"tools": [TOOL]}, "json", "structured_outputs"),
    ],
)
def test_what_the_model_cannot_do_is_refused(marked: Tokenizer, chat_format: ChatFormat, fields: dict[str, Any], kind: Any, param: str) -> None:
    params = SamplingParams(structured_outputs=None if kind is None else StructuredOutputs(kind, "{}"))
    with pytest.raises(ApiError) as caught:
        plan(marked, chat_format, params=params, **fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_json_beside_calls_that_no_grammar_knows_is_refused_by_their_format(marked: Tokenizer) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputs("json", "{}", parameter="response_format"))
    with pytest.raises(ApiError, match="calls are pythonic"):
        plan(marked, ChatFormat(TOOL_FORMATS["pythonic"], None, "tools"), params=params, tools=[TOOL])
