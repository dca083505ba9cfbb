import pytest
import torch

from stoker_engine.sampling.sampling_state import SamplingState
from stoker_engine.sampling_params import SamplingParams

VOCAB = 32
EOS = 7


def _generate(sample, state: SamplingState, num_steps: int) -> list[int]:
    logits = torch.linspace(0, 1, VOCAB)[None]
    for _ in range(num_steps):
        token_id = sample(logits, [state]).token_ids.item()
        state.append(token_id)
        if token_id in state.end_token_ids:
            break
    return state.output_token_ids


@pytest.mark.case("C045")
@pytest.mark.parametrize("min_tokens", [0, 1, 4, 32])
def test_an_end_token_comes_right_after_min_tokens(make_state, sample, min_tokens: int) -> None:
    params = SamplingParams(temperature=0.0, min_tokens=min_tokens, max_tokens=32, logit_bias={EOS: 100.0})
    output = _generate(sample, make_state(params, eos=[EOS], vocab_size=VOCAB), 32)
    assert output == [VOCAB - 1] * min_tokens + [EOS] * (min_tokens < 32)


@pytest.mark.property("P43")
@pytest.mark.case("C046")
@pytest.mark.parametrize(("stop_token_ids", "biased"), [([], 9), ([11], 11)])
@pytest.mark.parametrize("prompt_length", [3, 50])
def test_every_end_token_waits_for_min_tokens_of_output(make_state, sample, stop_token_ids, biased, prompt_length) -> None:
    params = SamplingParams(temperature=0.0, min_tokens=5, max_tokens=32, stop_token_ids=stop_token_ids, logit_bias={biased: 100.0})
    output = _generate(sample, make_state(params, prompt=[1] * prompt_length, eos=[7, 9], vocab_size=VOCAB), 32)
    assert output == [VOCAB - 1] * 5 + [biased]


@pytest.mark.case("C046")
def test_without_end_tokens_min_tokens_forbids_nothing(make_state, sample) -> None:
    params = SamplingParams(temperature=0.0, ignore_eos=True, min_tokens=3, max_tokens=6, logit_bias={VOCAB - 1: 100.0})
    assert _generate(sample, make_state(params, vocab_size=VOCAB), 6) == [VOCAB - 1] * 6


@pytest.mark.case("C044")
def test_output_from_before_a_preemption_counts_toward_min_tokens(make_state, sample) -> None:
    params = SamplingParams(temperature=0.0, min_tokens=4, max_tokens=32, logit_bias={EOS: 100.0})
    resumed = make_state(params, output=[VOCAB - 1] * 3, eos=[EOS], vocab_size=VOCAB)
    assert _generate(sample, resumed, 32) == [VOCAB - 1] * 4 + [EOS]


def test_a_bad_word_is_forbidden_only_at_its_last_token(make_state, sample) -> None:
    best = VOCAB - 1
    state = make_state(SamplingParams(temperature=0.0), bad_words=[[best, best, best]], prompt=[best] * 9, vocab_size=VOCAB)
    assert _generate(sample, state, 7) == [best, best, best - 1, best, best, best - 1, best]
