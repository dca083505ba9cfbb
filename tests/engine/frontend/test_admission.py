import pytest

from stoker_engine.errors import ParameterError, QueueFullError
from stoker_engine.frontend.admission import Admission, QueuedRequests, QueueLimits


@pytest.fixture
def queued() -> QueuedRequests:
    return QueuedRequests()


@pytest.mark.fault("F1")
def test_requests_beyond_the_limit_are_refused_until_one_has_its_first_token(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_requests=2), queued)
    queued.add("a", 5)
    queued.add("b", 5)
    with pytest.raises(QueueFullError, match="2 requests wait for their first token, and at most 2 may"):
        admission.check_requests(1)
    queued.discard("a")
    admission.check_requests(1)


@pytest.mark.fault("F1")
@pytest.mark.fault("F1")
def test_each_choice_counts(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_requests=4), queued)
    queued.add("a", 5)
    admission.check_requests(3)
    with pytest.raises(QueueFullError):
        admission.check_requests(4)


def test_requests_that_are_being_tokenized_count_as_queued(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_requests=2), queued)
    with admission.preparing(2), pytest.raises(QueueFullError):
        admission.check_requests(1)
    admission.check_requests(1)


@pytest.mark.fault("F1")
def test_prompt_tokens_beyond_the_limit_are_refused_until_some_are_computed(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_prefill_tokens=100), queued)
    queued.add("a", 60)
    admission.check_prefill_tokens(40)
    with pytest.raises(QueueFullError, match="60 prompt tokens wait to be computed, and with this request's 41 more than 100"):
        admission.check_prefill_tokens(41)
    queued.discard("a")
    queued.discard("a")
    assert queued.num_prefill_tokens == 0
    admission.check_prefill_tokens(41)


def test_a_request_of_any_size_is_taken_while_nothing_waits(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_requests=1, max_prefill_tokens=1), queued)
    admission.check_requests(128)
    admission.check_prefill_tokens(100_000)


def test_a_batch_that_could_never_wait_as_a_whole_is_an_invalid_request(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(max_requests=5), queued)
    admission.check_batch(5, 1)
    with pytest.raises(ParameterError, match="prompt has 3 prompts and n is 2, and at most 5 requests may wait"):
        admission.check_batch(3, 2)


def test_without_limits_any_number_is_taken(queued: QueuedRequests) -> None:
    admission = Admission(QueueLimits(), queued)
    for index in range(10_000):
        queued.add(str(index), 1000)
    admission.check_requests(1000)
    admission.check_prefill_tokens(10**9)
