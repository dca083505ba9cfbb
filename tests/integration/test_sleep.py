import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.errors import EngineNotReadyError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EnginePhase, PauseMode, SleepTag
from stoker_engine.sampling_params import SamplingParams

PROMPT = [1000 + 7 * index for index in range(64)]
PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
SMALL: dict[str, Any] = {"num_blocks_override": 64, "max_model_len": 512, "max_num_batched_tokens": 128, "max_num_seqs": 4}
MIB = 1 << 20
LONG_PROMPT = [2000 + 3 * index for index in range(480)]
KV_CACHE_MIB = 20
"""What its 31 blocks take, and a little less."""


def memory(engine: Any) -> int:
    """Bytes of its own that the process holds: the KV cache, as far as it was touched, weights and everything else."""
    lines = Path(f"/proc/{engine.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


async def ask(engine: Any) -> tuple[list[int], int | None]:
    output = await engine.generate(PROMPT, PARAMS)
    return output.outputs[0].token_ids, output.num_cached_tokens


async def assert_refused(engine: Any) -> None:
    assert await engine.llm.control.is_sleeping()
    assert engine.llm.status.phase is EnginePhase.SLEEPING
    with pytest.raises(EngineNotReadyError, match="the engine is sleeping"):
        await ask(engine)


async def sleep_and_wake(engine: Any, level: int) -> int:
    """The memory of the sleeping engine."""
    control = engine.llm.control
    await control.sleep(level)
    await assert_refused(engine)
    asleep = memory(engine)
    await control.wake_up([SleepTag.WEIGHTS])
    await assert_refused(engine)
    await control.wake_up([SleepTag.KV_CACHE])
    assert engine.llm.is_ready
    return asleep


async def interrupt(engine: Any, mode: PauseMode) -> RequestOutput:
    """Puts the engine to sleep while a request runs, and wakes it; the request's last output."""
    running = asyncio.ensure_future(engine.generate(PROMPT, PARAMS))
    while not (await engine.stats())["num_running"]:
        assert not running.done()
    await engine.llm.control.sleep(1, mode)
    assert (await engine.stats())["kv_cache_usage"] == 0
    await engine.llm.control.wake_up()
    output: RequestOutput = await running
    return output


@pytest.mark.case("C063", "C064")
async def test_an_engine_that_slept_answers_as_before_and_had_given_its_memory_back(start_engine: Callable[..., Any]) -> None:
    async with start_engine(**SMALL) as engine:
        first, _ = await ask(engine)
        await engine.generate(LONG_PROMPT, PARAMS)
        awake = memory(engine)
        assert awake > 600 * MIB
        for level in (1, 2):
            asleep = await sleep_and_wake(engine, level)
            assert asleep < awake - (KV_CACHE_MIB if level == 1 else 600) * MIB
            assert await ask(engine) == (first, 0)
            assert await ask(engine) == (first, 48)
            assert memory(engine) < awake + 100 * MIB


@pytest.mark.case("C063")
@pytest.mark.stress
async def test_requests_that_a_sleep_interrupts_end_or_go_on_by_its_mode(start_engine: Callable[..., Any]) -> None:
    async with start_engine(**SMALL) as engine:
        first, _ = await ask(engine)
        assert (await interrupt(engine, PauseMode.ABORT)).outputs[0].finish_reason is FinishReason.ABORT
        for mode in (PauseMode.WAIT, PauseMode.KEEP):
            assert (await interrupt(engine, mode)).outputs[0].token_ids == first


@pytest.mark.stress
async def test_a_profile_of_steps_is_written(start_engine: Callable[..., Any], tmp_path: Path) -> None:
    async with start_engine(**SMALL, profile_dir=str(tmp_path / "profiles")) as engine:
        await engine.llm.control.start_profile()
        await ask(engine)
        await engine.llm.control.stop_profile()
        (trace,) = (tmp_path / "profiles").iterdir()
        assert any("mkldnn" in event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"])
