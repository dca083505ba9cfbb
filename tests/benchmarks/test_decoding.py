from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from decoding import KINDS, decoding, start
from options import Options
from stoker_engine.core.engine_core import EngineCore

GREEDY = KINDS["greedy"]


@pytest.fixture(scope="module")
def core(make_model_directory: Callable[[int, int], Path]) -> Iterator[EngineCore]:
    """Of a tiny model, for two requests at once."""
    settings = {"max-num-seqs": "2", "num-blocks-override": "256"}
    core = start(Options((), f"file://{make_model_directory(50000, 50000)}", 1.0, 1, 0, settings, ()))
    yield core
    core.executor.shutdown()


def test_all_decode_inside_the_block_and_none_is_left_after_it(core: EngineCore) -> None:
    with decoding(core, GREEDY, 2, "both"):
        assert [request.num_computed_tokens >= 64 for request in core.scheduler.state.running] == [True, True]
    assert not core.scheduler.state.requests


def test_more_requests_than_run_at_once_are_refused(core: EngineCore) -> None:
    with pytest.raises(RuntimeError, match="max-num-seqs is 2: 3 requests do not decode at once"), decoding(core, GREEDY, 3, "three"):
        pass


def test_a_request_that_ends_before_all_decode_is_told(core: EngineCore) -> None:
    params = msgspec.structs.replace(GREEDY, max_tokens=1)
    with pytest.raises(RuntimeError, match="short-0 ended before all decode: length"), decoding(core, params, 2, "short"):
        pass
    assert not core.scheduler.state.requests


def test_a_request_that_ends_inside_the_block_is_told(core: EngineCore) -> None:
    with pytest.raises(RuntimeError, match="late: a request ended"), decoding(core, msgspec.structs.replace(GREEDY, max_tokens=4), 2, "late"):
        for _ in range(4):
            core.step()
    assert not core.scheduler.state.requests
