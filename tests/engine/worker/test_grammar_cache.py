import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stoker_engine.errors import EngineGenerateError
from stoker_engine.worker.grammar_cache import GrammarCache, UnwantedError


@dataclass
class Compiled:
    value: str
    memory_size_bytes: int = 1


def test_a_grammar_is_compiled_once_for_all_who_want_it() -> None:
    made: list[str] = []

    def make(kind: str, value: str, _is_wanted: Callable[[], bool]) -> Compiled:
        made.append(value)
        return Compiled(value)

    cache = GrammarCache[Compiled](make)
    wanted = [cache.get("json", "{}") for _ in range(3)]
    assert {each.future.result(10).value for each in wanted} == {"{}"}
    assert made == ["{}"]
    cache.close()


@pytest.mark.parametrize("error", [MemoryError(), KeyError("x"), OSError(24, "too many open files"), RuntimeError("no")])
def test_whatever_goes_wrong_is_told_to_who_waits_and_the_next_one_tries_again(error: Exception) -> None:
    errors = [error]

    def make(kind: str, value: str, _is_wanted: Callable[[], bool]) -> Compiled:
        if errors:
            raise errors.pop()
        return Compiled(value)

    cache = GrammarCache[Compiled](make)
    first = cache.get("json", "{}")
    with pytest.raises(type(error)):
        first.future.result(10)
    second = cache.get("json", "{}")
    assert second.future.result(10).value == "{}"
    cache.close()


def test_a_cache_that_can_compile_nothing_more_says_so_and_remembers_nothing() -> None:
    cache = GrammarCache[Compiled](lambda kind, value, _: Compiled(value))
    cache.close()
    for _ in range(2):
        with pytest.raises(EngineGenerateError, match="cannot be compiled"):
            cache.get("json", "{}")


def test_what_nobody_waits_for_any_more_is_given_up_and_made_again_for_who_asks_meanwhile() -> None:
    begun, asked_again = threading.Event(), threading.Event()
    told: list[bool] = []

    def make(kind: str, value: str, is_wanted: Callable[[], bool]) -> Compiled:
        told.append(is_wanted())
        if len(told) == 1:
            begun.set()
            assert asked_again.wait(10)
            raise UnwantedError
        return Compiled(value)

    cache = GrammarCache[Compiled](make)
    first = cache.get("json", "{}")
    assert begun.wait(10)
    del first
    second = cache.get("json", "{}")
    asked_again.set()
    assert second.future.result(10).value == "{}"
    assert told == [True, True]
    cache.close()


def test_what_is_given_up_and_wanted_again_many_times_is_made_in_the_end() -> None:
    told: list[bool] = []
    num_times = sys.getrecursionlimit()

    def make(kind: str, value: str, is_wanted: Callable[[], bool]) -> Compiled:
        told.append(is_wanted())
        if len(told) < num_times:
            raise UnwantedError
        return Compiled(value)

    cache = GrammarCache[Compiled](make)
    wanted = cache.get("json", "{}")
    assert wanted.future.result(10).value == "{}"
    assert told == [True] * num_times
    cache.close()
