"""FleetHistory: what this gateway has lately seen of its replicas, for people who look. Bounded, and gone with the process."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Literal

import msgspec

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet_view import EndpointView
from stoker_gateway.router.served_model import ServedModel

MAX_OBSERVATIONS = 100
"""Of failures, and as many of changes: many pods that come must not hide the one that fails."""

JOIN_SECONDS = 60.0
"""What is seen again within this time of the last one counts as one observation."""

MAX_TEXT_CHARACTERS = 200

FailureKind = Literal["failed", "ejected", "readmitted"]
ChangeKind = Literal["added", "ready", "notReady", "draining", "gone"]


class Observation(msgspec.Struct, rename="camel"):
    """`time` is its last, seconds since the epoch; `count` says how often it was seen."""

    id: int
    time: float
    model: str
    pod: str
    address: str
    kind: FailureKind | ChangeKind
    text: str
    count: int = 1


class FleetHistory:
    """`see` is called with the models after each update of the fleet."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._failures = _Ring()
        self._changes = _Ring()
        self._known: dict[Endpoint, tuple[EndpointView, ServedModel]] | None = None

    @property
    def failures(self) -> Iterator[Observation]:
        """Oldest first."""
        return self._failures.observations()

    @property
    def changes(self) -> Iterator[Observation]:
        """Oldest first."""
        return self._changes.observations()

    def failure(self, endpoint: Endpoint, kind: FailureKind, text: str) -> None:
        """What came of a request to this replica, or of asking whether it is ready."""
        self._failures.add(self._observe(endpoint, kind, text))

    def see(self, models: Iterable[ServedModel]) -> None:
        """Looks what has changed. Those that are there at first are no news."""
        now = {endpoint: (endpoint.view, model) for model in models for endpoint in model.endpoints}
        known, self._known = self._known, now
        if known is None:
            return
        for endpoint, (view, _) in now.items():
            if endpoint not in known:
                self._change(endpoint, "added", "ready" if endpoint.is_ready else "not ready yet")
            elif known[endpoint][0] is not view:
                self._compare(endpoint, known[endpoint][0], view)
        for endpoint, (_, model) in known.items():
            if endpoint not in now:
                self._changes.add(self._observe(endpoint, "gone", _with_requests("gone", endpoint), model.names[0]))

    def _compare(self, endpoint: Endpoint, before: EndpointView, after: EndpointView) -> None:
        if after.is_terminating and not before.is_terminating:
            self._change(endpoint, "draining", _with_requests("draining", endpoint))
        elif after.is_ready and not before.is_ready:
            self._change(endpoint, "ready", "ready")
        elif before.is_ready and not after.is_ready:
            self._change(endpoint, "notReady", _with_requests("not ready", endpoint))

    def _change(self, endpoint: Endpoint, kind: ChangeKind, text: str) -> None:
        self._changes.add(self._observe(endpoint, kind, text))

    def _observe(self, endpoint: Endpoint, kind: FailureKind | ChangeKind, text: str, model: str = "") -> Observation:
        if not model and self._known is not None and endpoint in self._known:
            model = self._known[endpoint][1].names[0]
        return Observation(next(self._ids), time.time(), model, endpoint.view.pod, str(endpoint.address), kind, text[:MAX_TEXT_CHARACTERS])


class _Ring:
    """The newest observations, alike ones joined."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, Observation] = OrderedDict()
        self._newest: dict[_Content, Observation] = {}

    def observations(self) -> Iterator[Observation]:
        return iter(self._by_id.values())

    def add(self, new: Observation) -> None:
        content = _content(new)
        old = self._newest.get(content)
        if old is not None and new.time - old.time <= JOIN_SECONDS:
            old.time = new.time
            old.count += 1
            self._by_id.move_to_end(old.id)
            return
        self._newest[content] = self._by_id[new.id] = new
        if len(self._by_id) > MAX_OBSERVATIONS:
            _, oldest = self._by_id.popitem(last=False)
            if self._newest[_content(oldest)] is oldest:
                del self._newest[_content(oldest)]


_Content = tuple[str, ...]


def _content(observation: Observation) -> _Content:
    return observation.model, observation.pod, observation.address, observation.kind, observation.text


def _with_requests(word: str, endpoint: Endpoint) -> str:
    if not endpoint.num_in_flight:
        return word
    return f"{word} with {endpoint.num_in_flight} request{'s' if endpoint.num_in_flight > 1 else ''} of this gateway in flight"
