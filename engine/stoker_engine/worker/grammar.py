"""The grammars of structured outputs, by xgrammar: compiled in a process of their own (grammar_process.py), matched in this one."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from stoker_engine.errors import EngineGenerateError, ParameterError
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import StructuredOutputs
from stoker_engine.structured_output_checks import check_structured_outputs
from stoker_engine.worker.bounded_calls import BoundedCalls, OverdueError
from stoker_engine.worker.grammar_cache import GrammarCache, Wanted
from stoker_engine.worker.grammar_process import CompileLimits, GrammarProcess, GrammarRefusedError
from stoker_engine.worker.grammar_server import TOKENIZER
from stoker_engine.worker.linear_grammars import is_linear

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar, GrammarMatcher, TokenizerInfo

ResultT = TypeVar("ResultT")

MATCH_SECONDS = 0.25
"""CPU time for which the steps wait for a request's matcher before the request is told to end, and MATCH_SECONDS_PER_TOKEN what each token gives back of
it. A schema without alternatives takes 0.02 ms for a token; an ambiguous grammar takes a minute where it gets a token of 100 characters."""
MATCH_SECONDS_PER_TOKEN = 0.005


class XGrammarSource:
    """A GrammarSource. The compiler's process, and its library in this one, start with the first grammar: 3 s, and 250 MB there."""

    def __init__(self, model: Path, vocab_size: int, limits: CompileLimits | None = None) -> None:
        """model: its files hold the tokenizer. vocab_size: ids from there on are never sampled."""
        self._process = GrammarProcess(model, vocab_size, limits or CompileLimits())
        self._cache = GrammarCache["CompiledGrammar"](self._compile)
        self._calls = BoundedCalls()
        self._tokenizer: TokenizerInfo | None = None
        self._loading = threading.Lock()

    def compile(self, request: EngineCoreRequest, when_compiled: Callable[[], None]) -> "XGrammar | None":
        wanted = request.sampling_params.structured_outputs
        if wanted is None:
            return None
        check_structured_outputs(wanted)
        calls = None if is_linear(wanted) else self._calls
        compiled = self._cache.get(wanted.kind, wanted.value)
        compiled.future.add_done_callback(lambda _: when_compiled())
        return XGrammar(compiled, wanted, calls, hides_end=request.sampling_params.ignore_eos)

    def close(self) -> None:
        self._cache.close()
        self._calls.close()
        self._process.close()

    def _compile(self, kind: str, value: str, is_wanted: Callable[[], bool]) -> "CompiledGrammar":
        """On a thread of the cache's."""
        import xgrammar  # 0.6 s, and 40 MB, which most engines never need

        with self._loading:
            if self._tokenizer is None:
                self._tokenizer = xgrammar.TokenizerInfo.deserialize_json(self._process.run(TOKENIZER, "").decode())
        return xgrammar.CompiledGrammar.deserialize_json(self._process.run(kind, value, is_wanted).decode(), self._tokenizer)


class XGrammar:
    """A Grammar: one request's matcher. `calls` run the matcher where it may take long.

    An end-of-sequence token is allowed only where the output may end. Where nothing else is allowed, the output is complete without it, so that
    `ignore_eos` and `min_tokens` have nothing to forbid. `hides_end`: the output goes on where it may.
    """

    def __init__(self, compiled: "Wanted[CompiledGrammar]", wanted: StructuredOutputs, calls: BoundedCalls | None, *, hides_end: bool) -> None:
        self._compiled: Wanted[CompiledGrammar] | None = compiled
        self._calls = calls
        self._parameter = wanted.parameter
        self._after = list(wanted.after_token_ids)
        self._start_token_id = wanted.start_token_id
        self._last: list[int] = []
        self._hides_end = hides_end
        self._matcher: GrammarMatcher | None = None
        self._bits = self._not_ends = np.zeros((1, 0), dtype=np.int32)
        self._is_complete = False
        self._seconds_left = MATCH_SECONDS

    def is_ready(self) -> bool:
        if self._compiled is None:
            return True
        future = self._compiled.future
        if not future.done():
            return False
        try:
            compiled = future.result()
            if self._calls is not None:
                self._calls.check_room()
            self._bounded(lambda: self._start(compiled))
        except GrammarRefusedError as error:
            raise ParameterError(f"{self._parameter}: {error}", self._parameter) from None
        except (EngineGenerateError, ParameterError):
            raise
        except Exception as error:
            raise EngineGenerateError(f"{self._parameter}: the grammar cannot be used: {error}") from error
        self._compiled = None
        return True

    def bitmask(self) -> bytes | None:
        if self._start_token_id is not None:
            return self._with_token(self._start_token_id).tobytes()
        return None if self._after else self._bits.tobytes()

    def accept(self, token_ids: Sequence[int]) -> bool:
        try:
            return self._bounded(lambda: self._follow(token_ids))
        except RuntimeError as error:  # the library's own
            raise EngineGenerateError(f"{self._parameter}: the grammar cannot be followed: {error}") from error

    def is_terminated(self) -> bool:
        return self._is_complete and not self._after

    def _bounded(self, work: Callable[[], ResultT]) -> ResultT:
        """Where it is overdue the matcher is still in use: the request ends, and nothing touches it any more."""
        if self._calls is None:
            return work()
        try:
            return self._calls.run(work, self._seconds_left)
        except OverdueError:
            raise self._too_ambiguous() from None

    def _too_ambiguous(self) -> ParameterError:
        return ParameterError(f"{self._parameter}: the grammar is too ambiguous: to follow it takes more than is left for other requests", self._parameter)

    def _follow(self, token_ids: Sequence[int]) -> bool:
        matcher = self._started()
        begin = time.thread_time()
        for token_id in token_ids:
            if self._start_token_id not in (None, token_id):
                self._after = []
            self._start_token_id = None
            if self._after:
                self._watch(token_id)
            elif not matcher.accept_token(token_id):
                return False
        if not self._after:
            self._fill(matcher)
        self._seconds_left = min(self._seconds_left + len(token_ids) * MATCH_SECONDS_PER_TOKEN, MATCH_SECONDS) - (time.thread_time() - begin)
        if self._seconds_left < 0:
            raise self._too_ambiguous()
        return True

    def _start(self, compiled: "CompiledGrammar") -> None:
        from xgrammar import GrammarMatcher

        self._matcher = matcher = GrammarMatcher(compiled)
        self._bits = np.zeros((1, -(-compiled.tokenizer_info.vocab_size // 32)), dtype=np.int32)
        begin = time.thread_time()
        self._not_ends = ~self._bits
        for token_id in matcher.stop_token_ids:
            self._not_ends.view(np.uint32)[0, token_id // 32] &= ~np.uint32(1 << token_id % 32)
        self._fill(matcher)
        self._seconds_left -= time.thread_time() - begin
        is_held = not self._after or self._start_token_id is not None
        if is_held and (self._is_complete or not self._bits.any()):
            raise GrammarRefusedError("it allows no output of any token")

    def _fill(self, matcher: "GrammarMatcher") -> None:
        """What may come next, and whether that is nothing but the end."""
        if matcher.is_terminated():
            self._is_complete = True
            return
        matcher.fill_next_token_bitmask(self._bits)
        if not matcher.is_completed():
            return
        going_on = self._bits & self._not_ends
        self._is_complete = not going_on.any()
        if self._hides_end:
            self._bits = going_on

    def _watch(self, token_id: int) -> None:
        """The form begins at the very token after `after_token_ids`."""
        self._last = [*self._last, token_id][-len(self._after) :]
        if self._last == self._after:
            self._after = []

    def _with_token(self, token_id: int) -> npt.NDArray[np.int32]:
        bits = self._bits.copy()
        if token_id // 32 < bits.shape[1]:
            bits.view(np.uint32)[0, token_id // 32] |= np.uint32(1 << token_id % 32)
        return bits

    def _started(self) -> "GrammarMatcher":
        if self._matcher is None:
            raise EngineGenerateError("the grammar is not compiled")
        return self._matcher
