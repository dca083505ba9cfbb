"""Grammars: what may come next in a request whose output has a form to follow. Who compiles them is a collaborator of EngineCore."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker_engine.protocol import EngineCoreRequest


class Grammar(Protocol):
    """One request's matcher. It has seen the tokens that were accepted, and no others. Nothing but `is_ready` is called before it is ready."""

    def is_ready(self) -> bool:
        """Whether it is compiled. Raises ParameterError for a grammar that cannot be, EngineGenerateError where that is not the request's fault."""

    def bitmask(self) -> bytes | None:
        """The tokens allowed next: bit i % 8 of byte i // 8 is set where token i is. Tokens past its end are not allowed. None: every token is."""

    def accept(self, token_ids: Sequence[int]) -> bool:
        """Takes in what was sampled; False where the grammar does not allow it. Raises ParameterError for a grammar that takes too long to follow,
        EngineGenerateError where that is not the request's fault."""

    def is_terminated(self) -> bool:
        """Whether the output is complete: nothing may follow, but the end."""


class GrammarSource(Protocol):
    """Gives requests their grammars; called on the thread that builds requests, which it holds up for nobody's grammar."""

    def compile(self, request: EngineCoreRequest, when_compiled: Callable[[], None]) -> Grammar | None:
        """A grammar that is being compiled; None for a request of free form. Raises ParameterError for one that is wrong at sight: the request fails alone.

        `when_compiled` is called on any thread when it is ready or cannot be.
        """


class NoGrammars:
    """Every request is of free form."""

    def compile(self, request: EngineCoreRequest, when_compiled: Callable[[], None]) -> Grammar | None:
        return None


NO_GRAMMARS = NoGrammars()


@dataclass(slots=True, frozen=True)
class GrammarOutput:
    """One step's bitmasks, by request id: never by a row's place in the batch, on which two parties could disagree."""

    bitmasks: dict[str, bytes]
