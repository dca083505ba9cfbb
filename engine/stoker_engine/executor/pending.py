"""Pending: what comes of a call, which may have been made already."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """A concurrent.futures.Future is one, too."""

    def result(self) -> T_co:
        """Waits for it. Raises what the call raised."""


@dataclass(slots=True, frozen=True)
class Done(Generic[T_co]):
    """The call was made. Unlike a Future it needs no lock."""

    value: T_co

    def result(self) -> T_co:
        return self.value
