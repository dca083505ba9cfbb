import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker_engine.errors import EngineGenerateError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.output_collector import RequestOutputCollector
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.frontend.parallel_sampling import ParentRequest
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, LogprobsArrays, PrefillStats
from stoker_engine.sampling_params import RequestOutputKind
from stoker_engine.tokenizer import Tokenizer

MakeRequest = Callable[..., EngineCoreRequest]
DELTA, CUMULATIVE, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY


@pytest.fixture
def processor(byte_tokenizer: Tokenizer) -> OutputProcessor:
    return OutputProcessor(byte_tokenizer)


@pytest.fixture
def add(processor: OutputProcessor, make_request: MakeRequest) -> Callable[..., RequestOutputCollector]:
    """Adds request p-1 with n choices, all on one collector."""

    def add(**params: Any) -> RequestOutputCollector:
        parent = ParentRequest(make_request("p-1", **params))
        collector = RequestOutputCollector(params["output_kind"])
        for index, request in enumerate(parent.child_requests()):
            processor.add_request(request, None, parent, index, collector)
        return collector

    return add


def step(processor: OutputProcessor, *outputs: EngineCoreOutput) -> list[str]:
    return processor.process_outputs(EngineCoreOutputs(outputs=list(outputs))).request_ids_to_abort


def said(index: int, text: str, finish_reason: FinishReason | None = None) -> EngineCoreOutput:
    return EngineCoreOutput(f"{index}_p-1", list(text.encode()), finish_reason)


@pytest.mark.property("P41")
def test_children_have_their_own_ids_and_seeds_and_share_the_prompt(make_request: MakeRequest) -> None:
    request = make_request("p-1", n=3, seed=7, prompt_logprobs=1)
    params, prompt = request.sampling_params, request.prompt_token_ids
    children = ParentRequest(request).child_requests()
    assert [child.request_id for child in children] == ["0_p-1", "1_p-1", "2_p-1"]
    assert [(child.sampling_params.n, child.sampling_params.seed) for child in children] == [(1, 7), (1, 8), (1, 9)]
    assert [child.sampling_params.prompt_logprobs for child in children] == [1, None, None]
    assert all(child.prompt_token_ids is prompt and child.external_request_id == "p" for child in children)
    assert children[-1] is request
    assert (params.n, params.seed) == (3, 7)


def test_without_a_seed_children_have_none(make_request: MakeRequest) -> None:
    assert {child.sampling_params.seed for child in ParentRequest(make_request(n=2)).child_requests()} == {None}


def test_final_only_gives_one_result_when_the_last_choice_ends(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(n=2, seed=7, output_kind=FINAL_ONLY)
    step(processor, said(0, "zero"), said(1, "one", FinishReason.LENGTH))
    assert collector.get_nowait() is None
    step(processor, said(0, "!", FinishReason.STOP))
    output = collector.get_nowait()
    assert output is not None
    assert output.request_id == "p"
    assert [(c.index, c.text, c.finish_reason) for c in output.outputs] == [(0, "zero", FinishReason.STOP), (1, "one", FinishReason.LENGTH)]
    assert (output.finished, output.num_output_tokens) == (True, 8)
    assert processor.num_requests == 0


def test_an_abort_of_the_parent_gives_one_result_with_what_exists(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(n=3, output_kind=FINAL_ONLY)
    step(processor, said(0, "zero"), said(1, "one", FinishReason.LENGTH))
    assert processor.abort_requests(["p-1"]) == ["0_p-1", "2_p-1"]
    output = collector.get_nowait()
    assert output is not None
    assert [(c.text, c.finish_reason) for c in output.outputs] == [("zero", FinishReason.ABORT), ("one", FinishReason.LENGTH), ("", FinishReason.ABORT)]
    assert output.finished
    assert processor.num_requests == 0
    assert not processor._internal_ids


def test_an_abort_by_the_external_id_aborts_every_choice(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    add(n=2, output_kind=DELTA)
    assert processor.abort_requests(["p"]) == ["0_p-1", "1_p-1"]


def test_the_prompt_counts_as_cached_only_where_it_was_for_all(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(n=2, output_kind=FINAL_ONLY)
    for index, num_cached_tokens in ((0, 0), (1, 16)):
        output = said(index, "x", FinishReason.LENGTH)
        output.prefill_stats = PrefillStats(17, num_cached_tokens)
        step(processor, output)
    result = collector.get_nowait()
    assert result is not None
    assert result.num_cached_tokens == 0


def test_prompt_logprobs_are_those_of_the_first_choice(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    for kind in (DELTA, FINAL_ONLY):
        collector = add(n=2, output_kind=kind, prompt_logprobs=0, prompt_token_ids=[97, 98])
        first = said(0, "x", FinishReason.LENGTH)
        first.new_prompt_logprobs = LogprobsArrays(np.array([[98]], np.int32), np.array([[-1.0]], np.float32), np.array([1], np.int32))
        step(processor, said(1, "y", FinishReason.LENGTH), first)
        output = collector.get_nowait()
        assert output is not None
        assert output.prompt_logprobs is not None
        assert [position and list(position) for position in output.prompt_logprobs] == [None, [98]]


def test_each_streamed_choice_begins_with_the_prompt_logprobs(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(n=3, output_kind=DELTA, prompt_logprobs=0, prompt_token_ids=[97, 98])
    step(processor, said(1, "y"))
    step(processor, said(1, "z", FinishReason.LENGTH))
    assert collector.get_nowait() is None
    first = said(0, "x")
    first.new_prompt_logprobs = LogprobsArrays(np.array([[98]], np.int32), np.array([[-1.0]], np.float32), np.array([1], np.int32))
    step(processor, first)
    output = collector.get_nowait()
    assert output is not None and output.prompt_logprobs is not None
    assert [(choice.index, choice.text, choice.finish_reason) for choice in output.outputs] == [(1, "yz", FinishReason.LENGTH), (0, "x", None)]
    step(processor, said(0, "x"))
    later = collector.get_nowait()
    assert later is not None and later.prompt_logprobs is None
    step(processor, said(2, "w"))
    last = collector.get_nowait()
    assert last is not None and last.prompt_logprobs is output.prompt_logprobs


def test_an_abort_gives_the_choices_that_waited_for_the_prompt_logprobs(processor: OutputProcessor, add: Callable[..., RequestOutputCollector]) -> None:
    collector = add(n=2, output_kind=DELTA, prompt_logprobs=0)
    step(processor, said(1, "y"))
    processor.abort_requests(["p"])
    output = collector.get_nowait()
    assert output is not None and output.finished
    assert sorted((choice.index, choice.text, choice.finish_reason) for choice in output.outputs) == [(0, "", FinishReason.ABORT), (1, "y", FinishReason.ABORT)]


async def test_the_failure_of_one_choice_fails_the_request_and_aborts_the_others(
    processor: OutputProcessor, add: Callable[..., RequestOutputCollector]
) -> None:
    collector = add(n=3, output_kind=DELTA)
    assert step(processor, EngineCoreOutput("1_p-1", [], FinishReason.ERROR, failure_message="no luck")) == ["0_p-1", "2_p-1"]
    with pytest.raises(EngineGenerateError, match="no luck"):
        await collector.get()
    assert processor.num_requests == 0


@pytest.mark.case("C026")
@pytest.mark.parametrize("kind", list(RequestOutputKind))
@pytest.mark.parametrize("seed", range(5))
def test_every_choice_finishes_once_and_the_request_last(
    processor: OutputProcessor, add: Callable[..., RequestOutputCollector], kind: RequestOutputKind, seed: int
) -> None:
    collector = add(n=4, output_kind=kind)
    order = [index for index in range(4) for _ in range(3)]
    random.Random(seed).shuffle(order)
    counts = dict.fromkeys(range(4), 0)
    outputs: list[RequestOutput] = []
    for index in order:
        counts[index] += 1
        step(processor, said(index, str(counts[index]), FinishReason.LENGTH if counts[index] == 3 else None))
        output = collector.get_nowait()
        outputs += [] if output is None else [output]
    finishes = [c.index for output in outputs for c in output.outputs if c.finish_reason is not None]
    assert sorted(finishes) == [0, 1, 2, 3]
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    texts = dict.fromkeys(range(4), "")
    for output in outputs:
        for completion in output.outputs:
            texts[completion.index] = texts[completion.index] + completion.text if kind is DELTA else completion.text
    assert set(texts.values()) == {"123"}
    assert outputs[-1].num_output_tokens == 12
