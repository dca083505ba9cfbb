import pytest

from stoker_engine.frontend.clients import unanswered
from stoker_engine.frontend.clients.unanswered import MAX_UNANSWERED_BYTES, UnansweredRequests
from stoker_engine.protocol import EngineCoreOutput


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> UnansweredRequests:
    monkeypatch.setattr(unanswered, "MAX_UNANSWERED_REQUESTS", 3)
    return UnansweredRequests()


def test_beyond_the_number_nothing_can_be_sent_until_something_is_answered(requests: UnansweredRequests) -> None:
    for request_id in "abc":
        assert requests.obstacle(10) is None
        requests.sent(request_id, 10)
    assert requests.obstacle(1) == "the engine has yet to answer 3 requests of 30 bytes"
    requests.answered([EngineCoreOutput("b", [1]), EngineCoreOutput("unknown", [1])])
    assert requests.obstacle(1) is None
    assert (len(requests), requests.num_bytes) == (2, 20)


def test_beyond_the_bytes_nothing_can_be_sent_but_one_request_always_can(requests: UnansweredRequests) -> None:
    assert requests.obstacle(2 * MAX_UNANSWERED_BYTES) is None
    requests.sent("a", MAX_UNANSWERED_BYTES - 5)
    assert requests.obstacle(5) is None
    assert requests.obstacle(6) is not None


@pytest.mark.property("P62")
def test_what_is_aborted_or_died_with_its_engine_counts_no_more(requests: UnansweredRequests) -> None:
    for request_id in "abc":
        requests.sent(request_id, 10)
    requests.forget(["a", "a", "x"])
    assert (len(requests), requests.num_bytes) == (2, 20)
    requests.clear()
    assert (len(requests), requests.num_bytes) == (0, 0)


def test_a_later_output_of_the_same_request_changes_nothing(requests: UnansweredRequests) -> None:
    requests.sent("a", 10)
    for _ in range(2):
        requests.answered([EngineCoreOutput("a", [1])])
    assert (len(requests), requests.num_bytes) == (0, 0)
