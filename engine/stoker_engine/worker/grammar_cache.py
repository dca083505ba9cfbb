"""GrammarCache: compiled grammars by what they were made of, the least recently used leaving first."""

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from stoker_engine.errors import EngineError, EngineGenerateError

logger = logging.getLogger(__name__)

MAX_GRAMMARS = 256
MAX_BYTES = 256 << 20
NUM_COMPILING = 2
"""At once. One that takes all its time holds up half of the others, and none of the engine's steps."""

Key = tuple[str, str]


class Sized(Protocol):
    @property
    def memory_size_bytes(self) -> int: ...


ItemT = TypeVar("ItemT", bound=Sized)


class UnwantedError(Exception):
    """Nobody waits any more for what was being compiled."""


class Wanted(Generic[ItemT]):
    """One request's claim to a grammar; when it is let go of, and nobody else has one, the grammar is not compiled any more."""

    def __init__(self, future: Future[ItemT]) -> None:
        self.future = future


class _Entry(Generic[ItemT]):
    """A grammar, being compiled or compiled, and who waits for it."""

    def __init__(self) -> None:
        self.future: Future[ItemT] = Future()
        self.wanted: weakref.WeakSet[Wanted[ItemT]] = weakref.WeakSet()


class GrammarCache(Generic[ItemT]):
    """Compiles on threads of its own. A grammar that cannot be compiled is forgotten at once."""

    def __init__(self, make: Callable[[str, str, Callable[[], bool]], ItemT]) -> None:
        """`make` raises UnwantedError where its last argument says that nobody waits any more."""
        self._make = make
        self._entries: OrderedDict[Key, _Entry[ItemT]] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(NUM_COMPILING, thread_name_prefix="grammar")

    def get(self, kind: str, value: str) -> Wanted[ItemT]:
        """Its future raises what `make` raises. Raises EngineGenerateError where nothing more can be compiled."""
        key = kind, value
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = _Entry()
                try:
                    self._threads.submit(self._compile, key, entry)
                except RuntimeError as error:  # no thread can be started, or the engine ends
                    raise EngineGenerateError(f"the grammar cannot be compiled: {error}") from error
                self._entries[key] = entry
            self._entries.move_to_end(key)
            wanted = Wanted(entry.future)
            entry.wanted.add(wanted)
            return wanted

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, key: Key, entry: _Entry[ItemT]) -> None:
        while not self._forget_unwanted(key, entry):
            with suppress(UnwantedError):  # somebody may want it again
                self._make_item(key, entry)
                return

    def _make_item(self, key: Key, entry: _Entry[ItemT]) -> None:
        """Raises UnwantedError."""
        try:
            item = self._make(*key, lambda: self._is_wanted(entry))
        except UnwantedError:
            raise
        except Exception as error:
            if not isinstance(error, EngineError):
                logger.exception("the compiler of grammars failed")
            with self._lock:
                self._forget(key, entry)
            entry.future.set_exception(error)
            return
        with self._lock:
            entry.future.set_result(item)
            self._make_room()

    def _is_wanted(self, entry: _Entry[ItemT]) -> bool:
        with self._lock:
            return len(entry.wanted) > 0

    def _forget_unwanted(self, key: Key, entry: _Entry[ItemT]) -> bool:
        """Whether nobody waits for it."""
        with self._lock:
            if entry.wanted:
                return False
            entry.future.cancel()
            self._forget(key, entry)
            return True

    def _make_room(self) -> None:
        """Keeps the newest, whatever its size."""
        compiled = [(key, entry.future.result().memory_size_bytes) for key, entry in self._entries.items() if entry.future.done()]
        total, count = sum(size for _, size in compiled), len(compiled)
        for key, size in compiled[:-1]:
            if total <= MAX_BYTES and count <= MAX_GRAMMARS:
                return
            del self._entries[key]
            total, count = total - size, count - 1

    def _forget(self, key: Key, entry: _Entry[ItemT]) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
