"""DeepSeek V3, R1 (a fenced block after the name) and V3.1 (the name, then the arguments), between marks of their own."""

import re
from collections.abc import Collection, Generator

from stoker_gateway.tools.call_object import argument_parts
from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import CallBegin, Content, Part, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, calls, json_by, tag, triggered
from stoker_gateway.tools.text_parts import content_until

_CALLS_OPEN = "<｜tool▁calls▁begin｜>"
_CALLS_CLOSE = "<｜tool▁calls▁end｜>"
_OPEN = "<｜tool▁call▁begin｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_CLOSE = "<｜tool▁call▁end｜>"
_NAME = re.compile(r"[\w.-]")


def _read(source: Source, _tool_names: Collection[str]) -> Steps:
    while (marker := (yield from content_until(source, (_CALLS_OPEN, _OPEN)))) is not None:
        if marker == _CALLS_OPEN:
            yield from source.skip_whitespace()
            if not (yield from source.skip(_OPEN)):
                yield Content(source.since(0))
                source.release()
                continue
        if not (yield from _read_call(source)):
            yield Content(source.since(0))
            source.release()
            continue
        source.release()
        yield from _skip_end(source)


def _read_call(source: Source) -> Generator[Part | None, None, bool]:
    name = yield from source.take_while(_NAME)
    if not (yield from source.skip(_SEPARATOR)):
        return False
    if name == "function" and (yield from source.peek()) != "{":
        name = yield from source.take_while(_NAME)
        yield from source.skip_whitespace()
        yield from source.skip("```json")
    yield from source.skip_whitespace()
    if not name or (yield from source.peek()) != "{":
        return False
    yield CallBegin(name)
    yield from argument_parts(source)
    return True


def _skip_end(source: Source) -> Steps:
    """Each mark that closes, where it is there; whitespace alone is left."""
    for mark in ("```", _CLOSE, _CALLS_CLOSE):
        yield from source.skip_whitespace()
        if (yield from source.skip(mark)):
            source.release()
        else:
            source.position = 0


def _force(tools: list[CallForm], count: CallCount) -> Format:
    tags = [tag(f"{_OPEN}function{_SEPARATOR}{tool.name}\n```json\n", json_by(tool.schema), f"\n```{_CLOSE}") for tool in tools]
    return tag(_CALLS_OPEN, calls(tags, "\n", count), _CALLS_CLOSE)


def _allow(tools: list[CallForm], count: CallCount) -> Format:
    return triggered([_CALLS_OPEN], [_force(tools, count)], CallCount.ONE)


def _force_v31(tools: list[CallForm], count: CallCount) -> Format:
    tags = [tag(f"{_OPEN}{tool.name}{_SEPARATOR}", json_by(tool.schema), _CLOSE) for tool in tools]
    return tag(_CALLS_OPEN, calls(tags, "", count), _CALLS_CLOSE)


def _allow_v31(tools: list[CallForm], count: CallCount) -> Format:
    return triggered([_CALLS_OPEN], [_force_v31(tools, count)], CallCount.ONE)


_MARKS = (_CALLS_OPEN, _CALLS_CLOSE, _OPEN, _SEPARATOR, _CLOSE)
DEEPSEEK_V3 = ToolFormat("deepseek_v3", _read, _force, _allow, special_tokens=_MARKS)
DEEPSEEK_V31 = ToolFormat("deepseek_v31", _read, _force_v31, _allow_v31, special_tokens=_MARKS)
