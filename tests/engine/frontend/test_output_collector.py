import asyncio

import pytest

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.outputs import CompletionOutput, Logprob, PositionLogprobs, RequestOutput
from stoker_engine.sampling_params import RequestOutputKind

PROMPT_LOGPROBS: list[PositionLogprobs | None] = [None, {7: Logprob(-1.0, 1, "x", b"x")}]


def output(text: str, token_ids: list[int], index: int = 0, finish_reason: FinishReason | None = None, num_output_tokens: int = 0) -> RequestOutput:
    completion = CompletionOutput(index, text, token_ids, logprobs=[{token_id: Logprob(-1.0, 1, "", b"")} for token_id in token_ids])
    completion.finish_reason = finish_reason
    return RequestOutput("r", None, [1, 7], [completion], finish_reason is not None, num_output_tokens=num_output_tokens)


@pytest.mark.fault("G9")
def test_waiting_deltas_are_joined_by_choice() -> None:
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    collector.put(output("a", [1]))
    collector.put(output("x", [9], index=1))
    collector.put(output("b", [2, 3], finish_reason=FinishReason.LENGTH, num_output_tokens=4))
    joined = collector.get_nowait()
    assert joined is not None
    assert [(c.index, c.text, c.token_ids, c.finish_reason) for c in joined.outputs] == [(0, "ab", [1, 2, 3], FinishReason.LENGTH), (1, "x", [9], None)]
    assert [list(position) for position in joined.outputs[0].logprobs or []] == [[1], [2], [3]]
    assert (joined.finished, joined.num_output_tokens) == (True, 4)
    assert collector.get_nowait() is None


@pytest.mark.fault("G9")
def test_prompt_logprobs_of_any_waiting_delta_are_kept() -> None:
    for position in (0, 1, 2):
        collector = RequestOutputCollector(RequestOutputKind.DELTA)
        for i in range(3):
            item = output("a", [i])
            item.prompt_logprobs = PROMPT_LOGPROBS if i == position else None
            collector.put(item)
        joined = collector.get_nowait()
        assert joined is not None
        assert joined.prompt_logprobs == PROMPT_LOGPROBS


def test_waiting_cumulative_outputs_are_replaced_by_choice() -> None:
    collector = RequestOutputCollector(RequestOutputKind.CUMULATIVE)
    first = output("x", [9], index=1, finish_reason=FinishReason.STOP)
    first.prompt_logprobs = PROMPT_LOGPROBS
    collector.put(first)
    collector.put(output("a", [1]))
    collector.put(output("ab", [1, 2]))
    latest = collector.get_nowait()
    assert latest is not None
    assert {(c.index, c.text, c.finish_reason) for c in latest.outputs} == {(0, "ab", None), (1, "x", FinishReason.STOP)}
    assert latest.prompt_logprobs == PROMPT_LOGPROBS


@pytest.mark.fault("G9")
async def test_an_exception_comes_after_the_output_before_it_and_stays() -> None:
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    collector.put(output("a", [1]))
    collector.put(EngineGenerateError("broken"))
    assert (await collector.get()).outputs[0].text == "a"
    for _ in range(2):
        with pytest.raises(EngineGenerateError, match="broken"):
            await collector.get()


async def test_get_waits_for_the_next_output() -> None:
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    waiting = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    collector.put(output("a", [1]))
    assert (await waiting).outputs[0].text == "a"
    collector.put(output("b", [2]))
    assert (await collector.get()).outputs[0].text == "b"


async def test_a_cancelled_get_loses_nothing() -> None:
    collector = RequestOutputCollector(RequestOutputKind.DELTA)
    waiting = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    collector.put(output("a", [1]))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await collector.get()).outputs[0].text == "a"
