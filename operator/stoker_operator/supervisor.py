"""Runs replicas until it is told to stop, then drains them. Knows nothing of files: it is handed plans."""

import asyncio
from collections.abc import Coroutine, Sequence

from stoker_operator.display import Display
from stoker_operator.errors import ReplicaError
from stoker_operator.gateway import Gateway
from stoker_operator.plan import GatewayPlan, ReplicaPlan
from stoker_operator.question import ask, greeting
from stoker_operator.replica import Replica
from stoker_operator.rows import build_row
from stoker_operator.stop_signals import StopSignals

REFRESH_SECONDS = 0.5
OBSERVE_TIMEOUT_SECONDS = 3.0

EXIT_OK = 0
EXIT_FAILED = 1


class Supervisor:
    """All replicas of one `stoker up`, and the gateway before them where there is one."""

    def __init__(self, plans: Sequence[ReplicaPlan], gateway: GatewayPlan | None, inherited_fds: Sequence[int], display: Display) -> None:
        self._display = display
        self._replicas = [Replica(plan, inherited_fds, display) for plan in plans]
        self._gateways = [] if gateway is None else [Gateway(gateway, inherited_fds, display)]
        self._url = plans[0].url if gateway is None else gateway.url
        self._signals = StopSignals(on_abort=self._abort, on_kill=self._kill)

    @property
    def _parts(self) -> list[Replica | Gateway]:
        return [*self._replicas, *self._gateways]

    async def serve(self) -> int:
        """Runs until a signal. Returns the exit code: 0 after a whole drain, 128 + signal if a second one cut it short, 1 if a replica or the gateway
        had to be killed."""
        await self._run(self._greet())
        return self._exit_code()

    async def answer(self, question: str) -> int:
        """Waits for the first replica, asks one question, shows the answer and drains. Returns 0, 1 without an answer, 128 + signal if interrupted."""
        try:
            answered = await self._run(self._ask(question))
        except ReplicaError as error:
            self._display.note(str(error))
            return EXIT_FAILED
        if not answered and self._signals.first is not None:
            return 128 + self._signals.first
        return self._exit_code()

    async def _run(self, work: Coroutine[None, None, None]) -> bool:
        """Runs the replicas until the work is done or a signal comes, then drains. Returns whether the work is done; raises its ReplicaError."""
        with self._signals:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(part.run()) for part in self._parts]
                watching = [group.create_task(self._watch()), group.create_task(self._refresh())]
                work_task = await self._until_stopped(work)
                await self._drain()
                await asyncio.gather(*running)
                for task in watching:
                    task.cancel()
        self._display.update([build_row(replica) for replica in self._replicas])
        if work_task.cancelled():
            return False
        await work_task
        return True

    async def _watch(self) -> None:
        for replica in self._replicas:
            await replica.started()
        import httpx  # it and the parser of metrics take 0.1 s: the programs use it for imports of their own

        from stoker_operator.observer import ReplicaObserver

        async with httpx.AsyncClient(timeout=OBSERVE_TIMEOUT_SECONDS, trust_env=False) as client, asyncio.TaskGroup() as group:
            for replica in self._replicas:
                group.create_task(replica.watch(ReplicaObserver(client, replica.plan.url)))
            for gateway in self._gateways:
                group.create_task(gateway.watch(client))

    async def _until_stopped(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Ends with the work, or with the first signal, which cancels the work."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._signals.stop_requested.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working})
        return working

    async def _greet(self) -> None:
        """Says how to ask when the first replica is ready; then there is nothing to do but to wait for a signal."""
        first = self._replicas[0]
        await first.ready.wait()
        for gateway in self._gateways:
            await gateway.ready.wait()
        self._display.note(greeting([replica.plan for replica in self._replicas], self._url))
        await self._signals.stop_requested.wait()

    async def _ask(self, question: str) -> None:
        first = self._replicas[0]
        if not await _is_ready_before(first.hopeless, first.ready):
            raise ReplicaError(f"{first.plan.name} cannot become ready: {first.state.failure}")
        for gateway in self._gateways:
            if not await _is_ready_before(gateway.hopeless, gateway.ready):
                raise ReplicaError(f"the gateway cannot become ready: {gateway.failure}")
        answer = await ask(first.plan, self._url, question)
        self._display.note(f"{question}\n{answer}")

    async def _refresh(self) -> None:
        while True:
            self._display.update([build_row(replica) for replica in self._replicas])
            await asyncio.sleep(REFRESH_SECONDS)

    async def _drain(self) -> None:
        if self._signals.first is not None:
            self._display.note("draining; once more (Ctrl-C) aborts the requests in flight, a third time kills")
        await asyncio.gather(*(part.drain() for part in self._parts))

    def _abort(self) -> None:
        self._display.note("aborting the requests in flight; once more kills")
        for part in self._parts:
            part.abort()

    def _kill(self) -> None:
        for part in self._parts:
            part.kill()

    def _exit_code(self) -> int:
        if self._signals.cut_short_by is not None:
            return 128 + self._signals.cut_short_by
        killed = [*(replica.state.killed for replica in self._replicas), *(gateway.killed for gateway in self._gateways)]
        return EXIT_FAILED if any(killed) else EXIT_OK


async def _is_ready_before(hopeless: asyncio.Event, ready: asyncio.Event) -> bool:
    waiting = [asyncio.create_task(event.wait()) for event in (ready, hopeless)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return ready.is_set()
