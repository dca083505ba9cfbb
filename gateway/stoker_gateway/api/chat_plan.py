"""ChatPlan: how one chat is to be sampled and read, by its tools, the model's format and the prompt's end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from stoker_engine.sampling_params import ReasoningSpan, SamplingParams, StructuredOutputs
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.chat_format import ChatFormat
from stoker_gateway.api.reasoning_tokens import ReasoningMarks, harmony_marks, think_marks
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.request import ChatCompletionRequest
from stoker_gateway.openai.tools import Tool, callable_tools, is_call_required
from stoker_gateway.reasoning.detect import Thinking, thinking_of
from stoker_gateway.reasoning.think import ContentParser, ThinkParser, ThinkTags
from stoker_gateway.tools.format import CallForm, ToolFormat, random_call_id
from stoker_gateway.tools.harmony import FINAL, HARMONY
from stoker_gateway.tools.json_list import JSON_LIST
from stoker_gateway.tools.parts import Parser
from stoker_gateway.tools.structural_tag import CallCount, Format, either, json_by, structural_tag, with_tokens
from stoker_gateway.tools.trimmed import TrimmedParser
from stoker_gateway.tools.uncalled import UncalledParser


@dataclass(slots=True, frozen=True)
class ChatPlan:
    """`make_parser` gives each choice its own; None where an answer is its text. `allows_many`: of several calls all are given, not the first alone.
    `reasoning_marks`: None where no reasoning comes, or its tokens cannot be told. `max_token_characters`: the tokenizer's.
    """

    params: SamplingParams
    make_parser: Callable[[], Parser] | None
    make_call_id: Callable[[], str]
    allows_many: bool
    reasoning_marks: ReasoningMarks | None = None
    max_token_characters: int | None = None


@dataclass(slots=True, frozen=True)
class _Chat:
    """What decides a plan. `tools` are those that may be called; `tool_format` is how, None where none may; `think` is None where no reasoning comes."""

    tools: Sequence[Tool]
    tool_format: ToolFormat | None
    think: ThinkTags | None
    is_thinking: bool
    is_required: bool
    call_count: CallCount

    @property
    def names(self) -> list[str]:
        return [tool.function.name for tool in self.tools]


def plan_chat(chat_format: ChatFormat, tokenizer: Tokenizer, request: ChatCompletionRequest, prompt: str, params: SamplingParams) -> ChatPlan:
    """`params` are the request's own. Raises ApiError (400) for tools that the model cannot be asked to call."""
    chat = _chat(chat_format, request, prompt)
    marks = _special_marks(chat, tokenizer)
    form = _structured_outputs(chat, tokenizer, marks, params.structured_outputs)
    if form is not None and not form.after_token_ids and (chat.is_required or params.structured_outputs is not None):
        chat = replace(chat, think=None)  # from the first token on there is nothing but what was asked for
    params = msgspec.structs.replace(
        params,
        structured_outputs=form,
        reasoning=_reasoning_span(chat),
        kept_special_token_ids=list(marks.values()),
    )
    is_plain = chat.tool_format is None and chat.think is None
    make_call_id = random_call_id if chat.tool_format is None else chat.tool_format.make_call_id
    return ChatPlan(
        params,
        None if is_plain else lambda: _parser(chat),
        make_call_id,
        chat.call_count is CallCount.MANY,
        _reasoning_marks(chat, tokenizer),
        tokenizer.max_token_characters,
    )


def _chat(chat_format: ChatFormat, request: ChatCompletionRequest, prompt: str) -> _Chat:
    tools = callable_tools(request.tools, request.tool_choice)
    is_required = is_call_required(request.tool_choice)
    tool_format = HARMONY if chat_format.is_harmony else None
    if tools:
        tool_format = _tool_format(chat_format, is_required=is_required)
    think = chat_format.think
    thinking = Thinking.OVER if think is None else thinking_of(think, prompt, is_continued=request.continue_final_message)
    return _Chat(
        tools=tools,
        tool_format=tool_format,
        think=None if thinking is Thinking.OVER else think,
        is_thinking=thinking is Thinking.BEGUN,
        is_required=is_required,
        call_count=CallCount.MANY if request.parallel_tool_calls and not isinstance(request.tool_choice, msgspec.Struct) else CallCount.ONE,
    )


def _tool_format(chat_format: ChatFormat, *, is_required: bool) -> ToolFormat:
    """A call that is required is written as JSON where the model's own format is not known to a grammar."""
    if not chat_format.takes_tools:
        raise ApiError("tools are not supported by this model: its chat template does not show them. Serve it with --chat-template.", param="tools")
    own = chat_format.tools
    if is_required:
        return JSON_LIST if own is None or own.force is None else own
    if own is None:
        message = "tools with tool_choice auto need a model whose calls can be read: serve it with --tool-call-parser, or ask for tool_choice required."
        raise ApiError(message, param="tools")
    return own


def _parser(chat: _Chat) -> Parser:
    parser: Parser = ContentParser() if chat.tool_format is None else chat.tool_format.parser(chat.names)
    if not chat.tools:
        parser = UncalledParser(parser)
    if chat.think is not None:
        parser = ThinkParser(chat.think, parser, is_open=chat.is_thinking)
    return TrimmedParser(parser)


def _reasoning_span(chat: _Chat) -> ReasoningSpan | None:
    if chat.tool_format is HARMONY:
        return ReasoningSpan("", FINAL, is_open=True)
    return None if chat.think is None else ReasoningSpan(chat.think.start, chat.think.end, is_open=chat.is_thinking)


def _reasoning_marks(chat: _Chat, tokenizer: Tokenizer) -> ReasoningMarks | None:
    if chat.tool_format is HARMONY:
        return harmony_marks(tokenizer)
    return None if chat.think is None else think_marks(chat.think, tokenizer)


def _special_marks(chat: _Chat, tokenizer: Tokenizer) -> dict[str, int]:
    """Those marks of the format that are special tokens in this vocabulary: where special tokens are skipped, the parser would miss them."""
    marks = () if chat.tool_format is None else chat.tool_format.special_tokens
    if chat.think is not None:
        marks = (*marks, chat.think.start, chat.think.end)
    token_ids = {mark: tokenizer.encode_chat(mark) for mark in marks}
    return {mark: ids[0] for mark, ids in token_ids.items() if len(ids) == 1 and ids[0] in tokenizer.special_token_ids}


def _structured_outputs(chat: _Chat, tokenizer: Tokenizer, marks: dict[str, int], asked: StructuredOutputs | None) -> StructuredOutputs | None:
    """The form of the answer: that of a call where one is required, the one that was asked for, or either. It begins after the reasoning."""
    if chat.is_required and asked is not None:
        raise ApiError(f"{asked.parameter} and a tool_choice that requires a call exclude each other.", param="tool_choice")
    form = _call_form(chat) if chat.is_required else _strict_form(chat) if asked is None else None
    if form is not None:
        asked = StructuredOutputs(kind="structural_tag", value=structural_tag(with_tokens(form, marks)), parameter="tools")
    elif asked is None:
        return None
    elif chat.tools and chat.tool_format is not HARMONY:
        asked = _form_or_call(chat, marks, asked)
    after = _after_token_ids(chat, tokenizer, is_of_calls=form is not None)
    return msgspec.structs.replace(asked, after_token_ids=after, start_token_id=_start_token_id(chat, tokenizer) if after else None)


def _call_form(chat: _Chat) -> Format | None:
    tool_format = chat.tool_format
    if tool_format is None or tool_format.force is None:
        return None
    return tool_format.force([CallForm(tool.function.name, tool.function.schema) for tool in chat.tools], chat.call_count)


def _strict_form(chat: _Chat) -> Format | None:
    """Any text in which the calls of strict functions follow their schemas; None where no function is strict."""
    tool_format = chat.tool_format
    if tool_format is None or not any(tool.function.strict for tool in chat.tools):
        return None
    if tool_format.allow is None:
        raise ApiError(f"strict functions are not supported where calls are {tool_format.name}; ask for tool_choice required.", param="tools")
    forms = [CallForm(tool.function.name, tool.function.schema if tool.function.strict else {"type": "object"}) for tool in chat.tools]
    return tool_format.allow(forms, chat.call_count)


def _form_or_call(chat: _Chat, marks: dict[str, int], asked: StructuredOutputs) -> StructuredOutputs:
    """A model that may answer or call writes its answer in the form, and its calls in that of calls."""
    call = _call_form(chat)
    if asked.kind not in ("json", "json_object"):
        raise ApiError(f"{asked.parameter} is not supported together with tools, unless it asks for JSON.", param=asked.parameter)
    if call is None:
        name = "" if chat.tool_format is None else chat.tool_format.name
        message = f"{asked.parameter} is not supported together with tools where calls are {name}: leave one of them out, or set tool_choice to none."
        raise ApiError(message, param=asked.parameter)
    schema = msgspec.json.decode(asked.value) if asked.kind == "json" else {"type": "object"}
    form = either(json_by(schema), with_tokens(call, marks))
    return StructuredOutputs(kind="structural_tag", value=structural_tag(form), parameter=asked.parameter)


def _after_token_ids(chat: _Chat, tokenizer: Tokenizer, *, is_of_calls: bool) -> list[int]:
    """The tokens that end the reasoning. Those of a mark that is no token of its own depend on the text around it: there is no telling them.

    Harmony's form of calls has all channels.
    """
    if chat.tool_format is HARMONY:
        return [] if is_of_calls else tokenizer.encode_chat(FINAL)
    token_ids = [] if chat.think is None else tokenizer.encode_chat(chat.think.end)
    return token_ids if len(token_ids) == 1 else []


def _start_token_id(chat: _Chat, tokenizer: Tokenizer) -> int | None:
    """The token that a reasoning which may come begins with: an answer without it has its form from its first token. None where the reasoning has begun,
    or its mark is no token of its own.
    """
    if chat.think is None or chat.is_thinking:
        return None
    token_ids = tokenizer.encode_chat(chat.think.start)
    return token_ids[0] if len(token_ids) == 1 else None
