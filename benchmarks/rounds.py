"""A line of a benchmark: every contestant once per round, one after the other, each round between two bandwidth probes.

A round whose probes differ by more than 10 %, or lost more than 10 % of their time to other programs, is not steady. A line needs three steady rounds
whose bandwidths agree, takes at most four more to find them, and is marked unstable where it has not.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

NUM_ROUNDS = 3
MAX_REPEATS = 4
"""Of a line: with the first attempt, five tries."""
TOLERANCE = 0.10

OURS = "stoker"
Metrics = Mapping[str, float]
"""What one run of one contestant measured, by name."""
Measure = Callable[[int], Metrics]
"""Runs a contestant once; the number is the round's, different for every attempt, so that no prompt comes twice."""


class Reading(msgspec.Struct, frozen=True):
    """What a bandwidth probe found: GB/s, and the share of its time in which other programs had the CPUs."""

    bandwidth: float
    lost: float = 0.0


class Round(msgspec.Struct, frozen=True):
    """Every contestant once. `peak` is bf16 operations per second where a line needs it."""

    before: Reading
    after: Reading
    peak: float | None
    results: dict[str, dict[str, float]]

    @property
    def is_steady(self) -> bool:
        return agree([self.before.bandwidth, self.after.bandwidth]) and max(self.before.lost, self.after.lost) <= TOLERANCE

    @property
    def bandwidth(self) -> float:
        """The better of both: what the machine can do."""
        return max(self.before.bandwidth, self.after.bandwidth)


class Line(msgspec.Struct, frozen=True):
    """The rounds that count, and how many were taken to find them."""

    name: str
    is_stable: bool
    num_attempts: int
    rounds: tuple[Round, ...]

    def values(self, contestant: str, metric: str) -> list[float]:
        return [each.results[contestant][metric] for each in self.rounds if metric in each.results.get(contestant, {})]

    def median(self, contestant: str, metric: str) -> float | None:
        return statistics.median(values) if (values := self.values(contestant, metric)) else None

    def times_better(self, peer: str, metric: str, *, higher_is_better: bool) -> float | None:
        """How many times better than the peer we are: the median of the rounds' ratios, each of two neighboring measurements. None where either has 0."""
        pairs = [(each.results[OURS].get(metric, 0.0), each.results.get(peer, {}).get(metric, 0.0)) for each in self.rounds]
        ratios = [ours / theirs if higher_is_better else theirs / ours for ours, theirs in pairs if ours and theirs]
        return statistics.median(ratios) if ratios else None


def agree(bandwidths: Sequence[float]) -> bool:
    """No two of them differ by more than 10 % of the larger."""
    return min(bandwidths) >= max(bandwidths) * (1 - TOLERANCE)


def steady_rounds(rounds: Sequence[Round], number: int) -> tuple[Round, ...] | None:
    """`number` steady rounds whose bandwidths agree, the closest together; None where there are not as many."""
    steady = sorted((each for each in rounds if each.is_steady), key=lambda each: each.bandwidth)
    windows = [tuple(steady[first : first + number]) for first in range(len(steady) - number + 1)]
    alike = [window for window in windows if agree([each.bandwidth for each in window])]
    return min(alike, key=lambda window: window[-1].bandwidth / window[0].bandwidth) if alike else None


@dataclass(slots=True, frozen=True)
class LinePlan:
    """How a line is measured: its probes (`peak` where bf16 operations limit it), the steady rounds it needs and how many more it may take to find them."""

    bandwidth: Callable[[], Reading]
    peak: Callable[[], float] | None = None
    num_rounds: int = NUM_ROUNDS
    max_repeats: int = MAX_REPEATS


def measure_line(name: str, contestants: Mapping[str, Measure], plan: LinePlan) -> Line:
    """Takes rounds until as many as needed count, or the repeats are used up."""
    rounds: list[Round] = []
    while len(rounds) < plan.num_rounds + plan.max_repeats:
        rounds.append(_take_round(len(rounds), contestants, plan))
        if kept := steady_rounds(rounds, plan.num_rounds):
            return Line(name, True, len(rounds), kept)
    return Line(name, False, len(rounds), tuple(rounds))


def _take_round(number: int, contestants: Mapping[str, Measure], plan: LinePlan) -> Round:
    before = plan.bandwidth()
    peak = plan.peak() if plan.peak else None
    results = {name: dict(measure(number)) for name, measure in contestants.items()}
    return Round(before, plan.bandwidth(), peak, results)
