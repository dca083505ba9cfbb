import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from stoker_operator.display import PlainDisplay
from stoker_operator.gateway import Gateway
from stoker_operator.plan import GatewayPlan, ProgramPlan
from stoker_operator.program import Program


async def test_a_gateway_is_looked_at_for_ever_for_its_restart_delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [503, 200, 503, 200]
    seen: list[bool] = []
    over = asyncio.Event()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(looks[len(seen)])

    def observe(_: Program, *, ready: bool, now: float) -> None:
        seen.append(ready)
        if len(seen) == len(looks):
            over.set()

    monkeypatch.setattr(Program, "observe", observe)
    monkeypatch.setattr("stoker_operator.gateway.OBSERVE_SECONDS", 0.001)
    plan = GatewayPlan("127.0.0.1", 1, 1.0, ProgramPlan("gateway", (sys.executable, "-c", ""), str(tmp_path / "message")))
    gateway = Gateway(plan, (), PlainDisplay())
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        watching = asyncio.create_task(gateway.watch(client))
        async with asyncio.timeout(20):
            await over.wait()
        watching.cancel()
    assert seen == [False, True, False, True]
    assert gateway.ready.is_set()
