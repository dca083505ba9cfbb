"""The gateway of this machine: one address before all replicas, kept running like them."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker_operator.display import Display
from stoker_operator.names import GATEWAY
from stoker_operator.plan import GatewayPlan
from stoker_operator.program import Program, ProgramEvents, ProgramExit
from stoker_operator.replica import OBSERVE_SECONDS, OBSERVE_STARTING_SECONDS

if TYPE_CHECKING:
    import httpx

TITLE = "stoker"
"""It belongs to no InferenceDeployment."""


class Gateway:
    """Its program. `ready` is set when it first knows its models, `hopeless` when that is not to be expected, for `failure`."""

    def __init__(self, plan: GatewayPlan, inherited_fds: Sequence[int], display: Display) -> None:
        self.plan = plan
        self.failure = ""
        self.killed = False
        self.ready = asyncio.Event()
        self.hopeless = asyncio.Event()
        self._display = display
        self._program = Program(plan.program, inherited_fds, ProgramEvents(lambda _, line: display.output(TITLE, GATEWAY, line), self._on_exit))

    async def run(self) -> None:
        """Keeps the program running; returns when it is drained or killed."""
        await self._program.keep_running()

    async def watch(self, client: "httpx.AsyncClient") -> None:
        """Looks at it once a second, more often at the start, for ever."""
        while True:
            ready = await self._is_ready(client)
            self._program.observe(ready=ready, now=time.monotonic())
            if ready:
                self.ready.set()
            await asyncio.sleep(OBSERVE_SECONDS if self.ready.is_set() else OBSERVE_STARTING_SECONDS)

    async def _is_ready(self, client: "httpx.AsyncClient") -> bool:
        import httpx

        try:
            return (await client.get(f"{self.plan.url}/readyz")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    async def drain(self) -> None:
        """SIGTERM, and SIGKILL when the grace is over. What it has in flight ends as the replicas drain."""
        try:
            async with asyncio.timeout(self.plan.grace):
                self._program.stop()
                await self._program.ended.wait()
        except TimeoutError:
            self._display.note(f"{GATEWAY}: not stopped within {self.plan.grace:g} s; killing it")
            self.kill()
            await self._program.ended.wait()

    def abort(self) -> None:
        """The second SIGTERM."""
        self._program.stop()

    def kill(self) -> None:
        self.killed = True
        self._program.kill()

    def _on_exit(self, exit_: ProgramExit) -> None:
        again = "at once" if exit_.delay == 0 else f"in {exit_.delay:g} s"
        self._display.note(f"{exit_}; starting it again {again}")
        if exit_.hopeless and not self.ready.is_set():
            self.failure = str(exit_)
            self.hopeless.set()
