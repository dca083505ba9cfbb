"""ToolFormat: how a family of models writes its calls."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from stoker_gateway.tools.parts import SteppedParser, Steps
from stoker_gateway.tools.source import Source
from stoker_gateway.tools.structural_tag import CallCount, Format


@dataclass(slots=True, frozen=True)
class CallForm:
    """A tool that must or may be called: its name and the schema of its arguments."""

    name: str
    schema: dict[str, Any]


def random_call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


@dataclass(slots=True, frozen=True)
class ToolFormat:
    """`read` makes the parts of a text; it is told the names of the tools. `force` is the form of a text that calls one of the tools, or
    many, and does nothing else; `allow` is that of a text that may do so anywhere. None where no grammar can say it. `special_tokens` are
    those that the parser must see."""

    name: str
    read: Callable[[Source, Collection[str]], Steps]
    force: Callable[[list[CallForm], CallCount], Format] | None
    allow: Callable[[list[CallForm], CallCount], Format] | None
    special_tokens: tuple[str, ...] = ()
    make_call_id: Callable[[], str] = random_call_id

    def parser(self, tool_names: Collection[str]) -> SteppedParser:
        return SteppedParser(lambda source: self.read(source, tool_names))
