import pytest

from search import MAX_STEPS, STEP, highest_sustained


@pytest.mark.parametrize("estimate", [30.0, 90.0, 100.0, 101.0, 400.0])
def test_the_rate_was_sustained_and_a_fortieth_more_was_not(estimate: float) -> None:
    tried: dict[float, bool] = {}

    def is_sustained(rate: float) -> bool:
        return tried.setdefault(rate, rate <= 100)

    found = highest_sustained(is_sustained, estimate)
    assert tried[found]
    assert min(rate for rate, good in tried.items() if not good) <= 1.025 * found


@pytest.mark.parametrize(("is_sustained", "said"), [(True, "every"), (False, "no")])
def test_a_search_that_sees_one_end_only_says_so(*, is_sustained: bool, said: str) -> None:
    tried = []
    with pytest.raises(RuntimeError, match=rf"from 100 to .*, {said} rate is sustained"):
        highest_sustained(lambda rate: tried.append(rate) or is_sustained, 100)  # type: ignore[func-returns-value]
    assert max(tried) / min(tried) == pytest.approx(STEP**MAX_STEPS)
