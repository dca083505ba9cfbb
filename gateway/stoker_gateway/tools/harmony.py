"""Harmony, GPT-OSS's format: messages on channels. Analysis is reasoning, final is content, commentary to a function is a call, other commentary content."""

import re
from collections.abc import Callable, Collection, Generator

from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Part, Reasoning, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, any_text, calls, const, json_by, sequence, tag, triggered

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
CONSTRAIN = "<|constrain|>"
_END = "<|end|>"
_CALL = "<|call|>"
_RETURN = "<|return|>"
ANALYSIS = "analysis"
ENDS = (_END, _CALL, _RETURN)
FINAL = f"{CHANNEL}final{MESSAGE}"

_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)")


def _read(source: Source, _tool_names: Collection[str]) -> Steps:
    seen = set[str]()
    while (yield from _read_header(source)):
        header = source.since(0)
        source.release()
        recipient = _RECIPIENT.search(header)
        if recipient is not None:
            yield CallBegin(recipient[1])
            if not (yield from _read_body(source, CallArguments)):
                yield CallArguments("{}")
            continue
        channel = _CHANNEL.search(header)
        make = Reasoning if channel is not None and channel[1] == ANALYSIS else Content
        if make.__name__ in seen:
            yield make("\n")
        seen.add(make.__name__)
        yield from _read_body(source, make)
    text = source.since(0)
    if not text.startswith((START, CHANNEL)):
        yield Content(text)


def _read_header(source: Source) -> Generator[None, None, bool]:
    """Up to the mark before a message, which is read, too. False where the text ends without one."""
    steps = source.take_until((MESSAGE,))
    while True:
        try:
            piece = next(steps)
        except StopIteration as stop:
            return stop.value is not None
        if piece is None:
            yield


def _read_body(source: Source, make: Callable[[str], Part]) -> Generator[Part | None, None, bool]:
    """The message's text, as it comes, and its end. Returns whether there was more than whitespace."""
    has_text = False
    steps = source.take_until((*ENDS, START, CHANNEL))
    while True:
        try:
            piece = next(steps)
        except StopIteration as stop:
            marker: str | None = stop.value
            break
        if piece is None:
            yield None
            continue
        has_text = has_text or not piece.isspace()
        yield make(piece)
        source.release()
    if marker in (START, CHANNEL):  # no end was written: the next header begins here
        source.position -= len(marker)
    source.release()
    return has_text


def _force(tools: list[CallForm], _count: CallCount) -> Format:
    """A call ends the answer: there is one at most, perhaps after reasoning."""
    reasoning = {"type": "optional", "content": sequence(_message(ANALYSIS, _END), const(f"{START}assistant"))}
    return sequence(reasoning, calls(_tags(tools), "", CallCount.ONE))


def _allow(tools: list[CallForm], _count: CallCount) -> Format:
    """Every channel that is not a call to a function is text."""
    return triggered([CHANNEL], [*_tags(tools), _message(ANALYSIS, _END), _message("commentary", _END), _message("final", _RETURN)], CallCount.MANY)


def _tags(tools: list[CallForm]) -> list[Format]:
    return [tag(f"{CHANNEL}commentary to=functions.{tool.name} {CONSTRAIN}json{MESSAGE}", json_by(tool.schema), _CALL) for tool in tools]


def _message(channel: str, end: str) -> Format:
    return tag(f"{CHANNEL}{channel}{MESSAGE}", any_text(), end)


HARMONY = ToolFormat("harmony", _read, _force, _allow, special_tokens=(START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS))
