"""Mistral: [TOOL_CALLS] before a JSON list of calls (up to 2024), or before each name with its arguments, name[ARGS]{…} or name[CALL_ID]…[ARGS]{…}."""

import re
import secrets
import string
from collections.abc import Collection, Generator

from stoker_gateway.tools.call_object import argument_parts, read_call
from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import CallBegin, Content, Part, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, calls, json_by, tag, triggered
from stoker_gateway.tools.text_parts import content_until, read_calls

_CALLS = "[TOOL_CALLS]"
_ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_NAME = re.compile(r"[\w.-]")
_ALPHANUMERIC = string.ascii_letters + string.digits


def mistral_call_id() -> str:
    """The only kind of id that Mistral's templates take."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


def _read(source: Source, _tool_names: Collection[str]) -> Steps:
    while (yield from content_until(source, (_CALLS,))) is not None:
        yield from source.skip_whitespace()
        first = yield from source.peek()
        if first == "[":
            is_call = yield from read_calls(source, "[", "]")
        elif first == "{":
            is_call = yield from read_call(source)
        else:
            is_call = yield from _read_named(source)
        if not is_call:
            yield Content(source.since(0))
        source.release()


def _read_named(source: Source) -> Generator[Part | None, None, bool]:
    name = yield from source.take_while(_NAME)
    call_id = None
    if (yield from source.skip(_CALL_ID)):
        call_id = yield from source.take_while(_NAME)
    yield from source.skip(_ARGS)
    yield from source.skip_whitespace()
    if not name or (yield from source.peek()) != "{":
        return False
    yield CallBegin(name, call_id or None)
    yield from argument_parts(source)
    return True


def _force(tools: list[CallForm], count: CallCount) -> Format:
    tags = [tag(f'{{"name": "{tool.name}", "arguments": ', json_by(tool.schema), "}") for tool in tools]
    return tag(f"{_CALLS}[", calls(tags, ", ", count), "]")


def _allow(tools: list[CallForm], count: CallCount) -> Format:
    return triggered([_CALLS], [_force(tools, count)], CallCount.ONE)


def _force_named(tools: list[CallForm], count: CallCount) -> Format:
    return calls(_named_tags(tools), "", count)


def _allow_named(tools: list[CallForm], count: CallCount) -> Format:
    return triggered([_CALLS], _named_tags(tools), count)


def _named_tags(tools: list[CallForm]) -> list[Format]:
    return [tag(f"{_CALLS}{tool.name}{_ARGS}", json_by(tool.schema), "") for tool in tools]


_MARKS = (_CALLS, _ARGS, _CALL_ID)
MISTRAL = ToolFormat("mistral", _read, _force, _allow, special_tokens=_MARKS, make_call_id=mistral_call_id)
MISTRAL_V11 = ToolFormat("mistral_v11", _read, _force_named, _allow_named, special_tokens=_MARKS, make_call_id=mistral_call_id)
