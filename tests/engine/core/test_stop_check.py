from collections.abc import Callable
from typing import Any

import pytest

from stoker_engine.core.request import RequestStatus
from stoker_engine.core.stop_check import check_stop, is_repeating
from stoker_engine.sampling_params import RepetitionDetection


def sample(request: Any, *token_ids: int) -> RequestStatus | None:
    for token_id in token_ids[:-1]:
        request.append_token(token_id)
        assert check_stop(request) is None
    request.append_token(token_ids[-1])
    return check_stop(request)


def test_the_models_own_end_has_no_stop_reason(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[7, 9])
    assert sample(request, 1, 9) is RequestStatus.FINISHED_STOPPED
    assert request.stop_reason is None


def test_a_stop_token_is_the_stop_reason(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[7], stop_token_ids=[11, 7])
    assert sample(request, 1, 11) is RequestStatus.FINISHED_STOPPED
    assert request.stop_reason == 11


def test_an_id_that_is_both_counts_as_the_models_own_end(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[7], stop_token_ids=[7])
    assert sample(request, 7) is RequestStatus.FINISHED_STOPPED
    assert request.stop_reason is None


@pytest.mark.property("P43")
def test_without_eos_ids_nothing_stops_before_the_cap(request_of: Callable[..., Any]) -> None:
    assert sample(request_of(eos_token_ids=[], max_tokens=3), 0, 0, 0) is RequestStatus.FINISHED_LENGTH_CAPPED


def test_an_end_token_at_the_cap_is_a_stop(request_of: Callable[..., Any]) -> None:
    assert sample(request_of(eos_token_ids=[7], max_tokens=2), 1, 7) is RequestStatus.FINISHED_STOPPED


def test_min_tokens_holds_back_every_stop_until_it_is_reached(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[7], min_tokens=4, max_tokens=32)
    assert sample(request, 7, 7, 7, 7) is RequestStatus.FINISHED_STOPPED


@pytest.mark.property("P42")
@pytest.mark.fault("C2")
def test_the_context_ends_a_request_short_of_its_min_tokens(request_of: Callable[..., Any]) -> None:
    request = request_of(prompt=[1, 2, 3], min_tokens=10, max_tokens=20)
    request.max_num_tokens = 5
    assert sample(request, 4, 4) is RequestStatus.FINISHED_LENGTH_CAPPED


@pytest.mark.parametrize(
    ("tail", "repeating"),
    [
        ([1, 7, 8, 7, 8, 7, 8], True),
        ([4, 5, 5, 5], True),
        ([5, 5], False),
        ([7, 8, 7, 8, 9, 8], False),
        ([1, 2, 3, 1, 2, 3, 1, 2, 3], True),
        ([1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4], False),
    ],
)
def test_repetition_is_three_copies_of_one_to_three_tokens(tail: list[int], *, repeating: bool) -> None:
    assert is_repeating(tail, RepetitionDetection(max_size=3, min_size=1, min_count=3)) is repeating


def test_a_repeating_request_ends_and_says_so(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[], max_tokens=50, repetition_detection=RepetitionDetection(max_size=3, min_size=1, min_count=3))
    assert sample(request, 7, 8, 7, 8, 7, 8) is RequestStatus.FINISHED_REPETITION
    assert request.stop_reason == "repetition_detected"


def test_a_prompt_that_repeats_itself_does_not_count(request_of: Callable[..., Any]) -> None:
    request = request_of(prompt=[5, 5, 5, 5], eos_token_ids=[], repetition_detection=RepetitionDetection(max_size=1, min_count=3))
    assert sample(request, 5, 5) is None


def test_repetition_waits_for_min_tokens(request_of: Callable[..., Any]) -> None:
    request = request_of(eos_token_ids=[], min_tokens=5, max_tokens=50, repetition_detection=RepetitionDetection(max_size=1, min_count=3))
    assert sample(request, 5, 5, 5, 5, 5) is RequestStatus.FINISHED_REPETITION
