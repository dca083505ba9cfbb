from stoker_operator.backoff import Backoff, restart_delay


def test_the_first_restart_is_at_once_and_the_others_double_to_a_minute() -> None:
    assert [restart_delay(count) for count in range(1, 10)] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert restart_delay(1_000_000) == 60.0


def test_a_minute_of_ready_starts_the_series_anew() -> None:
    backoff = Backoff()
    assert [backoff.delay_after_exit() for _ in range(3)] == [0.0, 1.0, 2.0]
    backoff.observe(ready=True, now=100.0)
    backoff.observe(ready=True, now=160.0)
    assert backoff.delay_after_exit() == 0.0


def test_less_than_a_minute_of_ready_does_not() -> None:
    backoff = Backoff()
    assert [backoff.delay_after_exit() for _ in range(2)] == [0.0, 1.0]
    backoff.observe(ready=True, now=100.0)
    backoff.observe(ready=True, now=159.0)
    assert backoff.delay_after_exit() == 2.0


def test_a_minute_counts_only_in_one_piece() -> None:
    backoff = Backoff()
    assert [backoff.delay_after_exit() for _ in range(2)] == [0.0, 1.0]
    for now, ready in ((0.0, True), (50.0, True), (51.0, False), (52.0, True), (100.0, True)):
        backoff.observe(ready=ready, now=now)
    assert backoff.delay_after_exit() == 2.0
