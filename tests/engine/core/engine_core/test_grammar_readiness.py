import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


@pytest.mark.property("P27")
def test_nobody_waits_for_a_grammar_and_its_request_runs_only_when_it_is_there(
    whole_engine: Callable[..., Any], request_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = whole_engine(scheduling_policy="priority")
    compiling, ready = threading.Event(), threading.Event()
    compile_now = engine.compile

    def compile_late(request: Any) -> Any:
        if "grammar" in engine.asked[request.request_id].fields:
            compiling.set()
            assert ready.wait(30)
        return compile_now(request)

    monkeypatch.setattr(engine, "compile", compile_late)
    with ThreadPoolExecutor(1) as input_thread:
        constrained = input_thread.submit(engine.add, [1, 2, 3], {"max_tokens": 8, "grammar": 4}, 0)
        assert compiling.wait(30)
        engine.add([4, 5, 6], {"max_tokens": 3, "eos_token_ids": []}, 0)
        for _ in range(3):
            engine.step()
            assert "r0000" not in engine.engine.last.num_scheduled_tokens
        assert len(engine.engine.results["r0001"].token_ids) == 3
        ready.set()
        constrained.result(30)
    engine.step()
    assert "r0000" in engine.engine.last.num_scheduled_tokens
    engine.settle()
