"""FleetBoard: the fleet as JSON, row by row, with the tick that each row last changed in."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_history import Observation
from stoker_gateway.router.fleet_page.rows import model_row

MODELS_PER_SLICE = 16
"""So many are looked at between two turns of the event loop: requests do not wait for the page."""

KEPT_TICKS = 120
"""So long it is known which models are gone; whoever has read nothing for longer gets everything anew."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Row:
    content: bytes
    tick: int


class _Table(dict[str, _Row]):
    """By key, each row as it was last seen."""

    def put(self, key: str, content: bytes, tick: int) -> None:
        row = self.get(key)
        if row is None or row.content != content:
            self[key] = _Row(content, tick)

    def since(self, tick: int) -> list[bytes]:
        return [row.content for row in self.values() if row.tick > tick]


class FleetBoard:
    """`tick` counts the looks in which anything was new; 0 before the first."""

    def __init__(self, fleet: Fleet, admission: Admission) -> None:
        self.tick = 0
        self._fleet = fleet
        self._admission = admission
        self._is_synced = False
        self._models = _Table()
        self._failures = _Table()
        self._changes = _Table()
        self._gone: dict[str, int] = {}
        """The tick that each model went in."""
        self._messages: dict[int, bytes] = {}
        """Of this tick, by the tick that their readers have seen."""

    async def look(self) -> None:
        """In slices: with thousands of models it takes a while."""
        tick = self.tick + 1
        models = self._fleet.models
        for index, model in enumerate(models):
            if index % MODELS_PER_SLICE == MODELS_PER_SLICE - 1:
                await asyncio.sleep(0)
            row = model_row(model, self._admission, asyncio.get_running_loop().time())
            self._models.put(row.uid, _encode(row), tick)
        there = {model.view.uid for model in models}
        for uid in [uid for uid in self._models if uid not in there]:
            del self._models[uid]
            self._gone[uid] = tick
        _look_at(self._failures, self._fleet.history.failures, tick)
        _look_at(self._changes, self._fleet.history.changes, tick)
        is_news = self.tick == 0 or self._is_synced != self._fleet.is_synced or tick in self._gone.values()
        self._is_synced = self._fleet.is_synced
        if is_news or any(row.tick == tick for table in (self._models, self._failures, self._changes) for row in table.values()):
            self._turn_to(tick)

    def _turn_to(self, tick: int) -> None:
        self.tick = tick
        self._messages.clear()
        for uid in [uid for uid, went in self._gone.items() if went <= tick - KEPT_TICKS or uid in self._models]:
            del self._gone[uid]

    def message(self, seen: int) -> bytes:
        """What is new since that tick: everything where it was 0, or too long ago. One line of JSON."""
        if (message := self._messages.get(seen)) is None:
            message = self._messages[seen] = self._compose(0 if seen <= self.tick - KEPT_TICKS else seen)
        return message

    def _compose(self, seen: int) -> bytes:
        gone = [uid for uid, went in self._gone.items() if went > seen] if seen else []
        facts = {"now": round(time.time(), 3), "whole": seen == 0, "isSynced": self._is_synced, "gone": gone}
        lists = (b'"%s":[%s]' % (name, b",".join(table.since(seen))) for name, table in self._tables())
        return _encode(facts)[:-1] + b"," + b",".join(lists) + b"}"

    def _tables(self) -> tuple[tuple[bytes, _Table], ...]:
        return (b"models", self._models), (b"failures", self._failures), (b"changes", self._changes)


def _look_at(table: _Table, observations: Iterable[Observation], tick: int) -> None:
    seen = {str(observation.id): _encode(observation) for observation in observations}
    for key in [key for key in table if key not in seen]:
        del table[key]
    for key, content in seen.items():
        table.put(key, content, tick)
