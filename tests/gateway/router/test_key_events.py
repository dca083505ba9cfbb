"""What is wrong with the Secret of API keys becomes one Event, however many gateways see it, and costs nobody else anything."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stoker_gateway.router.admission import key_ring
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.cluster import key_events
from stoker_gateway.router.cluster.api_server import connect
from stoker_gateway.router.cluster.key_events import KeyEvents

Until = Callable[[Callable[[], bool]], Awaitable[None]]
GOOD = {"name": "a", "sha256": sha256(b"key-of-a").hexdigest()}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_events, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(key_events, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(key_ring, "LOOK_SECONDS", 0.01)


@asynccontextmanager
async def telling(path: Path, num_gateways: int) -> AsyncIterator[list[KeyRing]]:
    rings = [KeyRing(path) for _ in range(num_gateways)]
    async with connect() as server:
        work = [(ring.watch(), KeyEvents(server, "stoker-system/gateway-keys", ring).run()) for ring in rings]
        tasks = [asyncio.create_task(each) for both in work for each in both]
        try:
            yield rings
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def write(path: Path, *entries: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": entries}, ensure_ascii=False))
    new.rename(path)


async def test_a_broken_entry_is_told_once_in_an_event_and_the_others_work(api_server: Any, tmp_path: Path, until: Until) -> None:
    path = tmp_path / "keys"
    write(path, GOOD, {"name": "broken"})
    events = api_server.objects["events"]
    async with telling(path, num_gateways=3) as rings:
        assert {ring.find(b"key-of-a").name for ring in rings} == {"a"}
        await until(lambda: len(events) == 1)
        ((namespace, name), event), *_ = events.items()
        assert namespace == "stoker-system" and name.startswith("gateway-keys.")
        assert event["regarding"] == {"apiVersion": "v1", "kind": "Secret", "namespace": "stoker-system", "name": "gateway-keys"}
        assert (event["type"], event["reason"]) == ("Warning", "InvalidApiKeys") and "keys[1]: " in event["note"]
        assert GOOD["sha256"] not in event["note"]
        write(path, GOOD)
        await until(lambda: not any(ring.faults for ring in rings))
        write(path, GOOD, {"é" * 900: 1})
        await until(lambda: len(events) == 2)
    assert max(len(each["note"].encode()) for each in events.values()) in (1023, 1024)


async def test_an_api_server_that_takes_no_events_costs_the_keys_nothing(api_server: Any, tmp_path: Path, until: Until) -> None:
    path = tmp_path / "keys"
    write(path, GOOD, {"name": "broken"})
    await api_server.stop()
    async with telling(path, num_gateways=1) as (ring,):
        write(path, {**GOOD, "name": "b"}, {"name": "broken", "sha256": "x"})
        await until(lambda: ring.find(b"key-of-a").name == "b")
        await api_server.start()
        await until(lambda: len(api_server.objects["events"]) == 1)
