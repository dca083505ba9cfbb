"""An api and its engine on this machine: run, watched, drained in the kubelet's order."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker_operator.display import Display
from stoker_operator.observation import NOTHING_SEEN, Observation
from stoker_operator.plan import ReplicaPlan
from stoker_operator.program import Program, ProgramEvents, ProgramExit

if TYPE_CHECKING:
    from stoker_operator.observer import ReplicaObserver

OBSERVE_SECONDS = 1.0
OBSERVE_STARTING_SECONDS = 0.1
"""Until the first READY: someone waits for it."""


@dataclass(slots=True)
class ReplicaState:
    """What is known of a replica now."""

    observation: Observation = NOTHING_SEEN
    draining: bool = False
    killed: bool = False
    failure: str = ""


class Replica:
    """Both programs of one replica. `ready` is set from its first READY on, `hopeless` when it is not to be expected, for `state.failure`."""

    def __init__(self, plan: ReplicaPlan, inherited_fds: Sequence[int], display: Display) -> None:
        self.plan = plan
        self.state = ReplicaState()
        self.ready = asyncio.Event()
        self.hopeless = asyncio.Event()
        self._display = display
        events = ProgramEvents(on_line=lambda component, line: display.output(plan.name, component, line), on_exit=self._on_exit)
        self.api = Program(plan.api, inherited_fds, events)
        self.engine = Program(plan.engine, inherited_fds, events)

    @property
    def pending_exit(self) -> ProgramExit | None:
        """The exit that a restart is pending for; the engine's first, because it is the cause more often."""
        return self.engine.last_exit or self.api.last_exit

    async def run(self) -> None:
        """Keeps both programs running; returns when the replica is drained or killed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.api.keep_running())
            group.create_task(self.engine.keep_running())

    async def started(self) -> None:
        """Returns when both programs have been started for the first time."""
        await self.api.started.wait()
        await self.engine.started.wait()

    async def watch(self, observer: "ReplicaObserver") -> None:
        """Looks at the api once a second, more often at the start, for ever."""
        while True:
            self.state.observation = observation = await observer.look()
            for program in (self.api, self.engine):
                program.observe(ready=observation.is_ready, now=time.monotonic())
            if observation.is_ready:
                self.ready.set()
            await asyncio.sleep(OBSERVE_SECONDS if self.ready.is_set() else OBSERVE_STARTING_SECONDS)

    async def drain(self) -> None:
        """SIGTERM to the api, to the engine when the api has ended, SIGKILL to what is left when the grace is over."""
        self.state.draining = True
        # What was in flight a second ago may have ended: nothing is said until the next look.
        self.state.observation = Observation(self.state.observation.startup)
        try:
            async with asyncio.timeout(self.plan.grace):
                for program in (self.api, self.engine):
                    program.stop()
                    await program.ended.wait()
        except TimeoutError:
            self._display.note(f"{self.plan.name}: not stopped within {self.plan.grace:g} s; killing it")
            self.kill()
            await self.api.ended.wait()
            await self.engine.ended.wait()

    def abort(self) -> None:
        """The second SIGTERM, to the api if it lives; the engine has its own turn when the api has ended."""
        program = self.engine if self.api.ended.is_set() else self.api
        program.stop()

    def kill(self) -> None:
        """SIGKILL to all that is left."""
        self.state.killed = True
        self.api.kill()
        self.engine.kill()

    def _on_exit(self, exit_: ProgramExit) -> None:
        again = "at once" if exit_.delay == 0 else f"in {exit_.delay:g} s"
        self._display.note(f"{self.plan.name}: {exit_}; starting it again {again}")
        if exit_.hopeless and not self.ready.is_set():
            self.state.failure = str(exit_)
            self.hopeless.set()
