from stoker_operator.contests import FREE_REPAIRS, HOLD_SECONDS, WINDOW_SECONDS, Contests


def _write(contests: Contests, place: str, desired: str, now: float) -> float:
    """Unless it has to wait: seconds."""
    seconds = contests.hold(place, desired, now)
    if not seconds:
        contests.written(place, desired, now)
    return seconds


def test_the_same_write_again_and_again_is_slowed_down():
    contests = Contests()
    assert [_write(contests, "service", "a", n) for n in range(FREE_REPAIRS)] == [0.0] * FREE_REPAIRS
    last = FREE_REPAIRS - 1
    assert _write(contests, "service", "a", last + 1) == HOLD_SECONDS - 1
    assert _write(contests, "service", "a", last + HOLD_SECONDS) == 0.0
    assert _write(contests, "service", "a", last + HOLD_SECONDS + 1) == HOLD_SECONDS - 1


def test_what_is_newly_wanted_is_written_at_once_however_often_that_changes():
    contests = Contests()
    assert [_write(contests, "service", str(n), n / 10) for n in range(50)] == [0.0] * 50


def test_a_minute_of_peace_ends_it():
    contests = Contests()
    for n in range(FREE_REPAIRS):
        _write(contests, "service", "a", n)
    assert _write(contests, "service", "a", FREE_REPAIRS + WINDOW_SECONDS) == 0.0


def test_one_object_slows_down_no_other():
    contests = Contests()
    for n in range(FREE_REPAIRS + 1):
        _write(contests, "service", "a", n)
    assert _write(contests, "deployment", "a", FREE_REPAIRS) == 0.0


def test_writes_that_fail_are_no_contest():
    contests = Contests()
    assert [contests.hold("service", "a", now=n / 10) for n in range(50)] == [0.0] * 50


def test_an_object_that_is_gone_leaves_nothing_to_its_successor():
    contests = Contests()
    for n in range(FREE_REPAIRS):
        _write(contests, "service", "a", n)
    contests.forget("service")
    assert _write(contests, "service", "a", FREE_REPAIRS) == 0.0
