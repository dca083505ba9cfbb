import math

import pytest
import torch

from stoker_engine.core.scheduler_output import NewRequestData
from stoker_engine.sampling import prompt_logprobs
from stoker_engine.sampling.logprobs import top_logprobs
from stoker_engine.sampling.prompt_logprobs import PromptLogprobs
from stoker_engine.sampling_params import SamplingParams

VOCAB = 50


def _logits(num_rows: int) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(1)) * 2


@pytest.mark.property("P44")
@pytest.mark.parametrize("num_top", [0, 1, 5, VOCAB, -1])
def test_lists_have_the_token_then_the_most_likely_ones(num_top: int) -> None:
    logprobs = torch.log_softmax(_logits(4), dim=-1)
    lists = top_logprobs(logprobs, torch.tensor([3, 0, 49, 20]), num_top)
    for row, token_id in enumerate((3, 0, 49, 20)):
        values = logprobs[row].tolist()
        ranked = sorted(range(VOCAB), key=lambda i: -values[i])[: VOCAB if num_top == -1 else num_top]
        assert lists.token_ids[row] == [token_id, *ranked]
        assert lists.logprobs[row] == [values[i] for i in (token_id, *ranked)]
        assert lists.ranks[row] == 1 + sum(x > values[token_id] for x in values)


def test_log_probabilities_are_those_of_the_raw_logits(make_state, sample) -> None:
    logits = _logits(1)
    params = SamplingParams(temperature=0.3, top_k=1, logit_bias={5: 100.0}, logprobs=2)
    output = sample(logits, [make_state(params, vocab_size=VOCAB)])
    raw = torch.log_softmax(logits[0], dim=-1)
    assert output.token_ids.tolist() == [5]
    assert output.logprobs[0].token_ids[0][0] == 5
    assert output.logprobs[0].logprobs[0][0] == pytest.approx(float(raw[5]))
    assert output.logprobs[0].token_ids[0][1:] == raw.topk(2).indices.tolist()
    assert output.logprobs[0].ranks == [int((raw >= raw[5]).sum())]


def test_logprob_token_ids_returns_exactly_those(make_state, sample) -> None:
    params = SamplingParams(temperature=0.0, logprob_token_ids=[9, 4, 30])
    output = sample(_logits(1), [make_state(params, vocab_size=VOCAB)])
    assert output.logprobs[0].token_ids == [[output.token_ids.item(), 9, 4, 30]]


def test_each_row_gets_as_many_as_it_asks_for(make_state, sample) -> None:
    wishes = [3, None, 0, 3, -1]
    states = [make_state(SamplingParams(temperature=0.0, logprobs=wish), vocab_size=VOCAB) for wish in wishes]
    output = sample(_logits(5), states)
    assert {row: len(lists.token_ids[0]) for row, lists in output.logprobs.items()} == {0: 4, 2: 1, 3: 4, 4: VOCAB + 1}
    assert all(lists.token_ids[0][0] == output.token_ids[row] for row, lists in output.logprobs.items())


def test_a_rows_logprobs_do_not_depend_on_the_batch(make_state, sample) -> None:
    states = [make_state(SamplingParams(temperature=0.0, logprobs=2), vocab_size=VOCAB) for _ in range(9)]
    logits = _logits(9)
    together = sample(logits, states).logprobs
    assert all(sample(logits[row : row + 1], states[:1]).logprobs[0] == together[row] for row in range(9))


def _prompt_request(length: int, num_top: int, output: int = 0) -> NewRequestData:
    tokens = [(7 * i) % VOCAB for i in range(length + output)]
    return NewRequestData("r", tokens, length, SamplingParams(prompt_logprobs=num_top), [], [], [], 0)


def _collect(chunks: list[int]) -> object:
    hidden = _logits(sum(chunks))
    collector = PromptLogprobs(VOCAB)
    collector.add(_prompt_request(sum(chunks), 2))
    start = 0
    for chunk in chunks:
        assert collector.collect("r", start, hidden[start : start + chunk], lambda states: states) is None
        start += chunk
    return collector.take("r")


@pytest.mark.case("C044")
@pytest.mark.parametrize("chunks", [[1] * 20, [7, 7, 6], [19, 1]])
def test_prompt_logprobs_do_not_depend_on_the_chunks(chunks: list[int]) -> None:
    whole = _collect([20])
    assert _collect(chunks) == whole
    assert len(whole.ranks) == 19
    logprobs = torch.log_softmax(_logits(20), dim=-1)
    assert whole.token_ids[:, 0].tolist() == [(7 * i) % VOCAB for i in range(1, 20)]
    assert all(math.isclose(row[0], float(logprobs[i, token[0]])) for i, (row, token) in enumerate(zip(whole.logprobs, whole.token_ids, strict=True)))


@pytest.mark.fault("C11", "E4")
def test_logits_of_a_prompt_are_computed_in_bounded_pieces(monkeypatch) -> None:
    monkeypatch.setattr(prompt_logprobs, "MAX_LOGITS_BYTES", 4 * VOCAB * 3)
    sizes = []
    collector = PromptLogprobs(VOCAB)
    collector.add(_prompt_request(20, 2))
    hidden = _logits(20)

    def compute_logits(states: torch.Tensor) -> torch.Tensor:
        sizes.append(len(states))
        return states

    assert collector.collect("r", 0, hidden, compute_logits) is None
    assert sizes == [3] * 6 + [1]
    assert collector.take("r") == _collect([20])


def test_a_prompt_that_is_not_computed_from_its_start_fails() -> None:
    collector = PromptLogprobs(VOCAB)
    collector.add(_prompt_request(20, 2))
    assert "position 16" in str(collector.collect("r", 16, _logits(4), lambda states: states))


def test_nan_in_a_prompts_logits_fails_it() -> None:
    collector = PromptLogprobs(VOCAB)
    collector.add(_prompt_request(4, 2))
    hidden = _logits(4)
    hidden[2, 2] = math.nan
    assert "not finite" in str(collector.collect("r", 0, hidden, lambda states: states))


@pytest.mark.case("C044")
def test_prompt_logprobs_are_not_told_again_after_a_preemption() -> None:
    collector = PromptLogprobs(VOCAB)
    collector.add(_prompt_request(20, 2, output=1))
    assert "r" not in collector
