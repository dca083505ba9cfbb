from collections.abc import Callable

import pytest

from stoker_engine.errors import EngineGenerateError, EngineNotReadyError
from stoker_engine.llm_engine import LLMEngine
from stoker_engine.protocol import PauseMode, SleepTag
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.testing import Script

PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.mark.case("C063")
@pytest.mark.parametrize("multiprocess_mode", [True, False], ids=["another process", "this process"])
def test_an_engine_that_sleeps_refuses_requests_and_answers_as_before_when_awake(
    start_llm_engine: Callable[..., LLMEngine], *, multiprocess_mode: bool
) -> None:
    engine = start_llm_engine(Script(), multiprocess_mode=multiprocess_mode)
    control = engine.control

    def generate() -> list[int]:
        (output,) = engine.generate(["Hello"], PARAMS, progress=False)
        return output.outputs[0].token_ids

    before = generate()
    for level in (0, 1, 2):
        control.sleep(level, PauseMode.WAIT)
        assert control.is_sleeping()
        assert control.is_paused()
        with pytest.raises(EngineNotReadyError, match="the engine is sleeping"):
            generate()
        with pytest.raises(EngineGenerateError, match="wake_up resumes it"):
            control.resume_generation()
        control.wake_up([SleepTag.KV_CACHE] if level else [SleepTag.SCHEDULING])
        assert control.is_sleeping() is (level > 0)
        control.wake_up()
        assert not control.is_paused()
        assert generate() == before
    assert control.reset_prefix_cache()
    with pytest.raises(EngineGenerateError, match="call to start_profile failed: profiling is off"):
        control.start_profile()
