"""Reads a call that is written as a JSON object: {"name": "…", "arguments": {…}}."""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from stoker_gateway.tools.json_text import decode_string, value_pieces, whole_string, whole_value
from stoker_gateway.tools.parts import CallArguments, CallBegin, Part
from stoker_gateway.tools.source import Source

CallReading = Generator[Part | None, None, bool]
"""Whether a call was read. If not, nothing but None was yielded, and what was read is text."""

_ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass(slots=True)
class _Call:
    """What is known of a call. `arguments` came before the name."""

    is_name: Callable[[str], bool]
    name: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    has_begun: bool = False

    def begin(self) -> CallBegin:
        self.has_begun = True
        return CallBegin(self.name or "", self.call_id)


def any_name(name: str) -> bool:
    return bool(name)


def read_call(source: Source, is_name: Callable[[str], bool] = any_name) -> CallReading:
    """The object that comes next. Its arguments are streamed as soon as its name is known and `is_name`."""
    call = _Call(is_name)
    if not (yield from source.skip("{")):
        return False
    is_closed = False
    while not is_closed and (yield from _read_member(source, call)):
        yield from source.skip_whitespace()
        is_closed = yield from source.skip("}")
        if not is_closed and not (yield from source.skip(",")):
            break
    if call.has_begun:  # models forget the last brace
        return True
    if call.name is None or not is_closed:
        return False
    yield call.begin()
    yield CallArguments(call.arguments or "{}")
    return True


def _read_member(source: Source, call: _Call) -> Generator[Part | None, None, bool]:
    yield from source.skip_whitespace()
    key = yield from whole_string(source)
    yield from source.skip_whitespace()
    if key is None or not (yield from source.skip(":")):
        return False
    yield from source.skip_whitespace()
    if key == "name" and call.name is None:
        name = yield from whole_string(source)
        call.name = name if name is not None and call.is_name(name) else None
        return call.name is not None
    if key in _ARGUMENT_KEYS and not call.has_begun:
        yield from _read_arguments(source, call)
        return True
    value = yield from whole_value(source)
    if key == "id":
        call.call_id = decode_string(value)
    return bool(value)


def _read_arguments(source: Source, call: _Call) -> Generator[Part | None, None, None]:
    if call.name is None:
        call.arguments = _unwrapped((yield from whole_value(source)))
        return
    first = yield from source.peek()
    if first == "{":
        yield call.begin()
        yield from argument_parts(source)
        return
    arguments = yield from whole_value(source)
    if arguments:
        yield call.begin()
        yield CallArguments(_unwrapped(arguments))


def argument_parts(source: Source) -> Generator[Part | None, None, None]:
    """The JSON value that comes next, as it comes. Once it is given, what was read will not be wanted as text."""
    for piece in value_pieces(source):
        yield None if piece is None else CallArguments(piece)
        source.release()


def _unwrapped(value: str) -> str:
    """Some models write the arguments as JSON within a string."""
    if value in ("null", ""):
        return "{}"
    text = decode_string(value)
    return value if text is None else text or "{}"
