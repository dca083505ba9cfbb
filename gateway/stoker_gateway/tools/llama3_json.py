"""Llama 3.1 to 3.3: an answer that is {"name": "…", "parameters": {…}}, perhaps after <|python_tag|>, several with semicolons between them."""

from collections.abc import Collection

from stoker_gateway.tools.call_object import read_call
from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import Content, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, calls, json_by, tag, triggered
from stoker_gateway.tools.text_parts import content_until

_PYTHON_TAG = "<|python_tag|>"


def _read(source: Source, tool_names: Collection[str]) -> Steps:
    """Only an object that names one of the tools is a call: any other is an answer in JSON."""
    yield from source.skip_whitespace()
    yield from source.skip(_PYTHON_TAG)
    yield from _read_calls(source, tool_names)
    while (yield from content_until(source, (_PYTHON_TAG,))) is not None:
        yield from _read_calls(source, tool_names)


def _read_calls(source: Source, tool_names: Collection[str]) -> Steps:
    while True:
        yield from source.skip_whitespace()
        if not (yield from read_call(source, tool_names.__contains__)):
            break
        source.release()
        yield from source.skip_whitespace()
        if not (yield from source.skip(";")):
            break
    if source.position:
        yield Content(source.since(0))
        source.release()


def _force(tools: list[CallForm], count: CallCount) -> Format:
    return calls(_tags(tools), "; ", count)


def _allow(tools: list[CallForm], count: CallCount) -> Format:
    """An answer in JSON may begin like a call: only the whole beginning of one is the beginning of a call."""
    tags = _tags(tools)
    return triggered([one["begin"] for one in tags], tags, count)


def _tags(tools: list[CallForm]) -> list[Format]:
    return [tag(f'{{"name": "{tool.name}", "parameters": ', json_by(tool.schema), "}") for tool in tools]


LLAMA3_JSON = ToolFormat("llama3_json", _read, _force, _allow, special_tokens=(_PYTHON_TAG,))
