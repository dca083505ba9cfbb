"""Hermes, Qwen 2.5 and 3 and many others: <tool_call>{"name": "…", "arguments": {…}}</tool_call>."""

from collections.abc import Collection

from stoker_gateway.tools.call_object import read_call
from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import Content, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, calls, json_by, tag, triggered
from stoker_gateway.tools.text_parts import content_until, read_calls

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


def _read(source: Source, _tool_names: Collection[str]) -> Steps:
    while (yield from content_until(source, (_OPEN,))) is not None:
        yield from source.skip_whitespace()
        is_list = (yield from source.peek()) == "["
        if not (yield from read_calls(source, "[", "]") if is_list else read_call(source)):
            yield Content(source.since(0))
            source.release()
            continue
        source.release()
        yield from source.skip_whitespace()
        if not (yield from source.skip(_CLOSE)):
            source.position = 0


def _force(tools: list[CallForm], count: CallCount) -> Format:
    return calls(_tags(tools), "\n", count)


def _allow(tools: list[CallForm], count: CallCount) -> Format:
    return triggered([_OPEN], _tags(tools), count)


def _tags(tools: list[CallForm]) -> list[Format]:
    return [tag(f'{_OPEN}\n{{"name": "{tool.name}", "arguments": ', json_by(tool.schema), f"}}\n{_CLOSE}") for tool in tools]


HERMES = ToolFormat("hermes", _read, _force, _allow, special_tokens=(_OPEN, _CLOSE))
