import math
from typing import Any

import pytest

from stoker_engine.errors import ParameterError
from stoker_engine.sampling_params import RepetitionDetection, SamplingParams

OUT_OF_RANGE = [
    ("n", 0),
    ("n", 129),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", math.nan),
    ("top_p", 0.0),
    ("top_p", 1.1),
    ("top_k", -2),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", 1e-36),
    ("repetition_penalty", 0.0099),
    ("repetition_penalty", 100.1),
    ("repetition_penalty", math.inf),
    ("repetition_penalty", math.nan),
    ("seed", 2**64),
    ("max_tokens", 0),
    ("min_tokens", -1),
    ("min_tokens", 17),
    ("logprobs", -2),
    ("prompt_logprobs", -2),
    ("logprob_token_ids", []),
    ("logit_bias", {1: 100.5}),
    ("allowed_token_ids", []),
    ("repetition_detection", RepetitionDetection(max_size=0)),
    ("repetition_detection", RepetitionDetection(max_size=3, min_count=1)),
]
TOO_MANY = [
    ("stop", ["x"] * 65),
    ("stop_token_ids", [1] * 129),
    ("bad_words", ["x"] * 1001),
    ("bad_words", ["x" * 1024] * 17),
    ("stop", ["x" * (1 << 20), ""]),
    ("logprob_token_ids", [1] * 129),
    ("logit_bias", dict.fromkeys(range(1025), 1.0)),
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"^{name} must be ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.parameter == name


@pytest.mark.fault("C10")
@pytest.mark.parametrize(("name", "value"), TOO_MANY, ids=[f"{name}-{index}" for index, (name, _) in enumerate(TOO_MANY)])
def test_a_list_that_is_too_long_is_refused_in_a_short_message(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"^{name} must be ") as caught:
        SamplingParams(**{name: value})
    assert len(str(caught.value)) < 300


def test_temperature_zero_turns_every_other_choice_off() -> None:
    params = SamplingParams(temperature=0.0, top_p=0.5, top_k=3, min_p=0.1)
    assert params.greedy
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)


def test_a_tiny_temperature_is_raised_to_one_that_cannot_overflow() -> None:
    params = SamplingParams(temperature=0.001)
    assert not params.greedy
    assert params.temperature == 0.01


@pytest.mark.parametrize("field", ["stop", "bad_words"])
def test_an_empty_string_is_refused(field: str) -> None:
    with pytest.raises(ParameterError, match=f"^{field} must be "):
        SamplingParams(**{field: [""]})


def test_stop_strings_need_text() -> None:
    with pytest.raises(ParameterError, match=r"^stop must be empty without detokenize"):
        SamplingParams(stop=["x"], detokenize=False)


def test_several_choices_of_a_greedy_request_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"^n must be 1 with temperature 0"):
        SamplingParams(temperature=0.0, n=2)
