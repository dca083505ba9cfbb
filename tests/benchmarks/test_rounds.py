from collections.abc import Iterator

import pytest

from rounds import OURS, Line, LinePlan, Reading, Round, agree, measure_line, steady_rounds


def a_round(before: float, after: float | None = None, *, lost: float = 0.0, ours: float = 2.0, peer: float = 1.0) -> Round:
    return Round(Reading(before, lost), Reading(before if after is None else after), None, {OURS: {"rate": ours}, "peer": {"rate": peer}})


def probed(*bandwidths: float) -> LinePlan:
    readings: Iterator[float] = iter(bandwidths)
    return LinePlan(lambda: Reading(next(readings)))


def test_bandwidths_agree_within_a_tenth_of_the_larger() -> None:
    assert [agree(pair) for pair in ([50.0, 45.0], [45.0, 50.0], [50.0, 47.0, 46.0])] == [True] * 3
    assert [agree(pair) for pair in ([50.0, 44.9], [44.9, 50.0], [50.0, 47.0, 44.0])] == [False] * 3


def test_a_round_is_steady_where_its_probes_agree_and_nobody_else_had_the_cpus() -> None:
    assert a_round(50, 46).is_steady
    assert not a_round(50, 40).is_steady
    assert not a_round(50, 50, lost=0.11).is_steady


def test_three_steady_rounds_end_a_line() -> None:
    numbers: list[int] = []
    line = measure_line("line", {OURS: lambda number: numbers.append(number) or {"rate": 1.0}}, probed(*[50.0] * 6))  # type: ignore[func-returns-value]
    assert (line.is_stable, line.num_attempts, len(line.rounds)) == (True, 3, 3)
    assert numbers == [0, 1, 2]


def test_an_unsteady_round_is_taken_again_with_a_new_number() -> None:
    numbers: list[int] = []
    plan = probed(50, 50, 50, 30, 50, 50, 50, 50)
    line = measure_line("line", {OURS: lambda number: numbers.append(number) or {"rate": float(number)}}, plan)  # type: ignore[func-returns-value]
    assert (line.is_stable, line.num_attempts) == (True, 4)
    assert sorted(line.values(OURS, "rate")) == [0, 2, 3]
    assert numbers == [0, 1, 2, 3]


def test_a_line_that_never_becomes_steady_is_given_up_after_four_repeats() -> None:
    line = measure_line("line", {OURS: lambda _: {"rate": 1.0}}, probed(*[50.0, 30.0] * 7))
    assert (line.is_stable, line.num_attempts, len(line.rounds)) == (False, 7, 7)


def test_rounds_of_two_states_of_the_machine_are_not_mixed() -> None:
    rounds = [a_round(30), a_round(58), a_round(31), a_round(59)]
    assert steady_rounds(rounds, 3) is None
    assert steady_rounds([*rounds, a_round(60)], 3) == (rounds[1], rounds[3], a_round(60))


def test_of_many_steady_rounds_the_closest_count() -> None:
    rounds = [a_round(50), a_round(54), a_round(50.1), a_round(50.2)]
    kept = steady_rounds(rounds, 3)
    assert kept is not None
    assert [each.bandwidth for each in kept] == [50, 50.1, 50.2]


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    line = Line("line", True, 3, (a_round(50, ours=2, peer=1), a_round(50, ours=30, peer=10), a_round(50, ours=8, peer=2)))
    assert line.times_better("peer", "rate", higher_is_better=True) == 3
    assert line.times_better("peer", "rate", higher_is_better=False) == pytest.approx(1 / 3)
    assert line.median(OURS, "rate") == 8


def test_where_a_contestant_has_nothing_there_is_no_ratio() -> None:
    line = Line("line", True, 1, (a_round(50, ours=1, peer=0),))
    assert line.times_better("peer", "rate", higher_is_better=True) is None
    assert line.times_better("nobody", "rate", higher_is_better=True) is None
    assert line.median("nobody", "rate") is None


def test_contestants_take_turns_between_two_probes() -> None:
    order: list[str] = []

    def probe() -> Reading:
        order.append("probe")
        return Reading(50.0)

    def contestant(name: str) -> dict[str, float]:
        order.append(name)
        return {"rate": 1.0}

    measure_line("line", {OURS: lambda _: contestant("ours"), "peer": lambda _: contestant("peer")}, LinePlan(probe, num_rounds=2))
    assert order == ["probe", "ours", "peer", "probe"] * 2
