"""No model's own format: a JSON list of calls. It is what a model is made to write that has no format, or one that no grammar can say."""

from collections.abc import Collection

import msgspec

from stoker_gateway.tools.format import CallForm, ToolFormat
from stoker_gateway.tools.parts import Content, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format, calls, const, json_by, sequence, tag
from stoker_gateway.tools.text_parts import read_calls, rest


def _read(source: Source, _tool_names: Collection[str]) -> Steps:
    yield from source.skip_whitespace()
    if not (yield from read_calls(source, "[", "]")):
        yield Content(source.since(0))
    source.release()
    yield from rest(source)


def _force(tools: list[CallForm], count: CallCount) -> Format:
    tags = [tag(f'{{"name": {_quoted(tool.name)}, "parameters": ', json_by(tool.schema), "}") for tool in tools]
    return sequence(const("["), calls(tags, ", ", count), const("]"))


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


JSON_LIST = ToolFormat("json_list", _read, _force, None)
