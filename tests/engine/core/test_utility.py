import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_engine.core.utility import MAX_RESULT_BYTES, UtilityCalls
from stoker_engine.errors import EngineGenerateError
from stoker_engine.protocol import PauseMode, SleepTag, UtilityOutput, UtilityRequest, encode
from stoker_engine.stats import SchedulerStats


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Methods:
    """Everything that a method may do."""

    def __init__(self) -> None:
        self.later: list[Future[Any]] = []

    def add(self, left: int, right: int = 1) -> int:
        return left + right

    def move(self, point: Point, tags: list[SleepTag] | None = None) -> Any:
        return {"is_point": isinstance(point, Point), "x": point.x, "tags": tags}

    def mode(self, mode: PauseMode) -> str:
        return type(mode).__name__

    def stats(self) -> SchedulerStats:
        return SchedulerStats(num_running=3)

    def object(self) -> Any:
        return object()

    def huge_integer(self) -> int:
        return 1 << 80

    def endless(self) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    def big(self) -> bytes:
        return bytes(MAX_RESULT_BYTES)

    def fail(self) -> None:
        raise RuntimeError("no \ud800 way")

    def refuse(self) -> None:
        raise EngineGenerateError("not now")

    def wait(self) -> "Future[Any]":
        self.later.append(Future())
        return self.later[-1]


NAMES = [name for name in vars(Methods) if not name.startswith("_")]


class Caller:
    """Calls and keeps every answer."""

    def __init__(self) -> None:
        self.methods = Methods()
        self.calls = UtilityCalls({name: getattr(self.methods, name) for name in NAMES})
        self.answers: list[UtilityOutput] = []
        self._call_ids = itertools.count(100)

    def send(self, method: str, *args: Any) -> int:
        call_id = next(self._call_ids)
        self.calls.call(UtilityRequest(call_id, method, list(args)), self.answers.append)
        return call_id

    def call(self, method: str, *args: Any) -> UtilityOutput:
        call_id = self.send(method, *args)
        assert self.answers[-1].call_id == call_id
        encode(self.answers[-1])
        return self.answers[-1]

    def failure(self, method: str, *args: Any) -> str:
        output = self.call(method, *args)
        assert output.failure_message is not None
        assert output.result is None
        return output.failure_message


@pytest.fixture
def caller() -> Caller:
    return Caller()


def test_a_method_is_called_with_positional_arguments_and_defaults(caller: Caller) -> None:
    assert caller.call("add", 2, 3).result == 5
    assert caller.call("add", 2).result == 3


def test_arguments_become_what_the_annotations_say(caller: Caller) -> None:
    assert caller.call("move", {"x": 4}, ["weights"]).result == {"is_point": True, "x": 4, "tags": ["weights"]}
    assert caller.call("mode", "keep").result == "PauseMode"


def test_a_struct_travels_as_a_dictionary(caller: Caller) -> None:
    assert caller.call("stats").result["num_running"] == 3


@pytest.mark.fault("B9")
@pytest.mark.parametrize("name", ["missing", "__init__", "later", "add.__class__", "", "x" * 5000])
def test_any_name_that_is_not_listed_is_refused(caller: Caller, name: str) -> None:
    message = caller.failure(name)
    assert "no utility method" in message
    assert len(message) < 1000


def test_a_refusal_is_answered_and_leaves_no_traceback_in_the_log(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    assert caller.failure("refuse") == "call to refuse failed: not now"
    assert not caplog.records
    caller.failure("fail")
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("method", "args", "words"),
    [
        ("add", (), "call to add failed: it takes the arguments (left, right), 1 of them required, got []"),
        ("add", (1, 2, 3), "got [1, 2, 3]"),
        ("add", ("1",), "call to add failed: argument left = '1': Expected `int`, got `str`"),
        ("add", (1, None), "argument right = None"),
        ("add", (True,), "argument left = True"),
        ("move", ({"y": 1},), "argument point = {'y': 1}: Object missing required field `x`"),
        ("move", ({"x": 1}, ["disk"]), "argument tags = ['disk']: Invalid enum value 'disk'"),
        ("mode", ("stop",), "argument mode = 'stop': Invalid enum value 'stop'"),
        ("mode", ("s" * 100_000,), "argument mode = 'sss"),
    ],
)
def test_a_wrong_argument_is_named_with_its_method_and_value(caller: Caller, method: str, args: tuple[Any, ...], words: str) -> None:
    message = caller.failure(method, *args)
    assert words in message
    assert len(message) <= 2000


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("object", "its result, of type object, cannot be sent"),
        ("huge_integer", "cannot be sent"),
        ("endless", "cannot be sent"),
        ("big", f"at most {MAX_RESULT_BYTES} can be sent"),
    ],
)
def test_a_result_that_cannot_be_sent_is_the_failure_of_its_call(caller: Caller, method: str, words: str) -> None:
    assert words in caller.failure(method)
    assert caller.call("add", 1).result == 2


@pytest.mark.property("P50")
def test_an_exception_is_told_in_its_own_words(caller: Caller) -> None:
    assert caller.failure("fail") == "call to fail failed: no \\ud800 way"


def test_a_future_is_answered_when_it_is_done(caller: Caller) -> None:
    first, second = caller.send("wait"), caller.send("wait")
    assert caller.answers == []
    caller.methods.later[1].set_result("b")
    caller.methods.later[0].set_exception(RuntimeError("a failed"))
    assert caller.answers == [UtilityOutput(second, result="b"), UtilityOutput(first, failure_message="call to wait failed: a failed")]


@pytest.mark.property("P50")
@pytest.mark.fault("B5")
def test_a_cancelled_future_is_answered_too(caller: Caller) -> None:
    caller.send("wait")
    caller.methods.later[0].cancel()
    assert caller.answers[0].failure_message == "call to wait failed: it was cancelled"


@pytest.mark.property("P50")
@pytest.mark.fault("B5")
def test_pending_and_later_calls_fail_in_shutdown_and_are_answered_once(caller: Caller) -> None:
    pending = caller.send("wait")
    caller.calls.refuse("the engine is shutting down")
    assert caller.answers == [UtilityOutput(pending, failure_message="call to wait failed: the engine is shutting down")]
    caller.methods.later[0].set_result(None)
    assert len(caller.answers) == 1
    assert caller.failure("add", 1) == "call to add failed: the engine is shutting down"


@pytest.mark.fault("B6")
def test_nobody_answers_a_client_that_is_gone(caller: Caller) -> None:
    caller.send("wait")
    caller.calls.forget()
    caller.methods.later[0].set_result(None)
    assert caller.answers == []


def test_futures_may_be_done_on_other_threads_while_calls_are_refused(caller: Caller) -> None:
    sent = [caller.send("wait") for _ in range(200)]
    barrier = threading.Barrier(3)

    def finish(futures: list[Future[Any]]) -> None:
        barrier.wait()
        for future in futures:
            future.set_result(None)

    with ThreadPoolExecutor(2) as pool:
        for half in (caller.methods.later[::2], caller.methods.later[1::2]):
            pool.submit(finish, half)
        barrier.wait()
        caller.calls.refuse("stopping")
    assert sorted(answer.call_id for answer in caller.answers) == sent


Operation = Callable[[Caller], Any]
ARGUMENTS = st.lists(st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.dictionaries(st.just("x"), st.integers(0, 9)), max_size=3)
OPERATIONS = st.one_of(
    st.builds(lambda name, args: lambda caller: caller.send(name, *args), st.sampled_from([*NAMES, "missing"]), ARGUMENTS),
    st.builds(lambda index: lambda caller: _finish(caller, index), st.integers(0, 9)),
    st.just(lambda caller: caller.calls.refuse("stopping")),
)


def _finish(caller: Caller, index: int) -> None:
    if index < len(caller.methods.later) and not caller.methods.later[index].done():
        caller.methods.later[index].set_result(index)


@pytest.mark.property("P50")
@pytest.mark.fault("B6")
@settings(max_examples=200)
@given(st.lists(OPERATIONS, max_size=30))
def test_each_call_gets_exactly_one_answer_that_is_its_own(operations: list[Operation]) -> None:
    caller = Caller()
    sent = [call_id for call_id in (operation(caller) for operation in operations) if call_id is not None]
    for index in range(len(caller.methods.later)):
        _finish(caller, index)
    assert sorted(answer.call_id for answer in caller.answers) == sent
    for answer in caller.answers:
        encode(answer)
