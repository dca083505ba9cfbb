from stoker_operator.contests import FREE_REPAIRS, HOLD_SECONDS, WINDOW_SECONDS, Contests


def test_the_same_write_again_and_again_is_slowed_down():
    contests = Contests()
    assert [contests.hold("service", "a", now=n) for n in range(FREE_REPAIRS)] == [0.0] * FREE_REPAIRS
    last = FREE_REPAIRS - 1
    assert contests.hold("service", "a", now=last + 1) == HOLD_SECONDS - 1
    assert contests.hold("service", "a", now=last + HOLD_SECONDS) == 0.0
    assert contests.hold("service", "a", now=last + HOLD_SECONDS + 1) == HOLD_SECONDS - 1


def test_what_is_newly_wanted_is_written_at_once_however_often_that_changes():
    contests = Contests()
    assert [contests.hold("service", str(n), now=n / 10) for n in range(50)] == [0.0] * 50


def test_a_minute_of_peace_ends_it():
    contests = Contests()
    for n in range(FREE_REPAIRS):
        contests.hold("service", "a", now=n)
    assert contests.hold("service", "a", now=FREE_REPAIRS + WINDOW_SECONDS) == 0.0


def test_one_object_slows_down_no_other():
    contests = Contests()
    for n in range(FREE_REPAIRS + 1):
        contests.hold("service", "a", now=n)
    assert contests.hold("deployment", "a", now=FREE_REPAIRS) == 0.0
