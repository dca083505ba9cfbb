"""Llama 3.2 and 4: an answer that is a Python list of calls, [name(argument=value), …], perhaps between <|python_start|> and <|python_end|>."""

import ast
import re
from collections.abc import Collection, Generator

import msgspec

from stoker_gateway.tools.format import ToolFormat
from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Part, Steps
from stoker_gateway.tools.source import Reading, Source
from stoker_gateway.tools.text_parts import rest

_START = "<|python_start|>"
_END = "<|python_end|>"
_NAME = re.compile(r"[\w.-]")
_MAX_CALL_CHARACTERS = 100_000
"""Of one call: Python's own parser reads it at once."""


def _read(source: Source, tool_names: Collection[str]) -> Steps:
    """A call is given at once when its bracket closes. Only calls of the tools' own names count: any other list is an answer in Python."""
    yield from source.skip_whitespace()
    yield from source.skip(_START)
    yield from source.skip_whitespace()
    if (yield from source.skip("[")):
        yield from _read_list(source, tool_names)
    if source.position:
        yield Content(source.since(0))
        source.release()
    yield from rest(source)


def _read_list(source: Source, tool_names: Collection[str]) -> Steps:
    """Leaves what is no call unreleased."""
    while (yield from _read_call(source, tool_names)):
        source.release()
        yield from source.skip_whitespace()
        if not (yield from source.skip(",")):
            if (yield from source.skip("]")):
                yield from source.skip_whitespace()
                yield from source.skip(_END)
                source.release()
            return


def _read_call(source: Source, tool_names: Collection[str]) -> Generator[Part | None, None, bool]:
    yield from source.skip_whitespace()
    name = yield from source.take_while(_NAME)
    if name not in tool_names or not (yield from source.skip("(")):
        return False
    text = yield from _until_bracket_closes(source)
    arguments = None if text is None else _arguments(text)
    if arguments is None:
        return False
    yield CallBegin(name)
    yield CallArguments(arguments)
    return True


def _until_bracket_closes(source: Source) -> Reading[str | None]:
    """What is between the bracket that was read and its partner; None where that does not come."""
    start = source.position
    depth = 1
    quote = ""
    is_escaped = False
    while source.position - start <= _MAX_CALL_CHARACTERS and (character := (yield from source.peek())):
        source.position += 1
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
        if not depth:
            return source.since(start)[:-1]
    return None


def _arguments(text: str) -> str | None:
    """`city="Oslo", days=3` as JSON; None where that is no list of keyword arguments with plain values."""
    try:
        call = ast.parse(f"f({text.strip()})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            return None
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        return None if None in named else msgspec.json.encode(named).decode()
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


PYTHONIC = ToolFormat("pythonic", _read, None, None, special_tokens=(_START, _END))
