"""UTILITY calls: the engine's methods that a client may call by name. An explicit list: any other name is refused."""

import inspect
import itertools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, get_type_hints

import msgspec

from stoker_engine.errors import EngineGenerateError
from stoker_engine.protocol import UtilityOutput, UtilityRequest, encode

logger = logging.getLogger(__name__)

MAX_RESULT_BYTES = 4 << 20
"""Encoded. A larger result would hold up the outputs behind it."""
MAX_SHOWN_CHARS = 200
"""Of a value in a failure message."""
MAX_MESSAGE_CHARS = 2000

Reply = Callable[[UtilityOutput], None]


class UtilityArgumentError(Exception):
    """A call has an unknown method, or arguments that are not the method's."""


class UtilityCalls:
    """Calls `methods` by name and gives each call exactly one answer, also when it fails. A method may return a Future: the answer follows when it is done."""

    def __init__(self, methods: Mapping[str, Callable[..., Any]]) -> None:
        self._methods = {name: _Method(function) for name, function in methods.items()}
        self._pending: dict[int, tuple[UtilityRequest, Reply]] = {}
        self._numbers = itertools.count()
        self._refusal: str | None = None

    def call(self, request: UtilityRequest, reply: Reply) -> None:
        """`reply` gets the answer: now, or from the thread that completes the method's Future."""
        number = next(self._numbers)
        self._pending[number] = request, reply
        if self._refusal is not None:
            self._answer(number, _failed(request, self._refusal))
            return
        try:
            result = self._invoke(request)
        except (UtilityArgumentError, EngineGenerateError) as error:  # refused, as it may be: no traceback
            self._answer(number, _failed(request, str(error)))
        except Exception as error:
            logger.warning("call to %s failed", _name(request), exc_info=True)
            self._answer(number, _failed(request, str(error) or type(error).__name__))
        else:
            if isinstance(result, Future):
                result.add_done_callback(lambda future: self._complete(number, request, future))
            else:
                self._answer(number, _succeeded(request, result))

    def refuse(self, reason: str) -> None:
        """From now on every call fails with `reason`, those that are pending at once."""
        self._refusal = reason
        for number, (request, _) in list(self._pending.items()):
            self._answer(number, _failed(request, reason))

    def forget(self) -> None:
        """The client is gone: nobody waits for the calls that are pending."""
        self._pending.clear()

    def _invoke(self, request: UtilityRequest) -> Any:
        method = self._methods.get(request.method)
        if method is None:
            raise UtilityArgumentError(f"it is no utility method; there are {', '.join(self._methods)}")
        return method.call(request.args)

    def _complete(self, number: int, request: UtilityRequest, future: "Future[Any]") -> None:
        if number in self._pending:  # else it was refused or forgotten: its outcome is nobody's, and no warning to the log
            self._answer(number, _outcome(request, future))

    def _answer(self, number: int, output: UtilityOutput) -> None:
        """The first answer counts: a Future may be done after the call was refused or forgotten."""
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending[1](output)


class _Method:
    """A method with its positional parameters and their types, read once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function)
        self._types = {name: hints[name] for name in parameters}
        self._num_required = sum(parameter.default is inspect.Parameter.empty for parameter in parameters.values())

    def call(self, args: list[Any]) -> Any:
        if not self._num_required <= len(args) <= len(self._types):
            raise UtilityArgumentError(f"it takes the arguments ({', '.join(self._types)}), {self._num_required} of them required, got {_shown(args)}")
        return self._function(*(_convert(name, kind, value) for (name, kind), value in zip(self._types.items(), args, strict=False)))


def _convert(name: str, kind: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UtilityArgumentError(f"argument {name} = {_shown(value)}: {error}") from error


def _outcome(request: UtilityRequest, future: "Future[Any]") -> UtilityOutput:
    try:
        return _succeeded(request, future.result())
    except CancelledError:
        return _failed(request, "it was cancelled")
    except Exception as error:
        logger.warning("call to %s failed", _name(request), exc_info=True)
        return _failed(request, str(error) or type(error).__name__)


def _succeeded(request: UtilityRequest, result: Any) -> UtilityOutput:
    """Structs travel as builtins. A result that cannot be sent is the failure of this call: later it would be the output thread's."""
    try:
        plain = msgspec.to_builtins(msgspec.structs.asdict(result) if isinstance(result, msgspec.Struct) else result, builtin_types=(bytes,))
        output = UtilityOutput(request.call_id, result=plain)
        size = len(encode(output))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return _failed(request, f"its result, of type {type(result).__name__}, cannot be sent: {error}")
    if size > MAX_RESULT_BYTES:
        return _failed(request, f"its result has {size} bytes, at most {MAX_RESULT_BYTES} can be sent")
    return output


def _failed(request: UtilityRequest, reason: str) -> UtilityOutput:
    message = f"call to {_name(request)} failed: {reason}"[:MAX_MESSAGE_CHARS]
    return UtilityOutput(request.call_id, failure_message=message.encode(errors="backslashreplace").decode())


def _name(request: UtilityRequest) -> str:
    """As it is where it could be a method's."""
    return request.method if request.method.isidentifier() and len(request.method) <= MAX_SHOWN_CHARS else _shown(request.method)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"
