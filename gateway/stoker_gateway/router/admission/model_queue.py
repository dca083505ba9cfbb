"""ModelQueue: requests for one model that wait until a replica can take them."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from stoker_engine.config import seconds
from stoker_gateway.openai.errors import ApiError, draining, model_not_found
from stoker_gateway.router.admission.caller import Caller
from stoker_gateway.router.admission.refusals import too_many_waiting, waited_too_long
from stoker_gateway.router.admission.room import has_room, num_serving
from stoker_gateway.router.served_model import ServedModel

TICK_SECONDS = 0.1
"""How often a queue that is not empty looks for room."""

RELEASED_PER_TICK = 8
"""To each ready replica at most: the first one that comes back does not get all that has waited, and has said how it does before it has much."""


@dataclass(slots=True, eq=False)
class _Waiter:
    caller: Caller
    turn: asyncio.Future[None]


class ModelQueue:
    """Of the callers that wait, those of the lowest priority number go first; of these the one that has the fewest requests with replicas.

    Bounded: one too many costs the caller that has the most of them. Lives on one event loop.
    """

    def __init__(self, model: ServedModel, may_get_replicas: Callable[[], bool]) -> None:
        self._model = model
        self._may_get_replicas = may_get_replicas
        self._waiting: dict[Caller, deque[_Waiter]] = {}
        self._num_in_flight: Counter[Caller] = Counter()
        self._last_turn: dict[Caller, int] = {}
        self._num_turns = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def try_enter(self, caller: Caller) -> bool:
        """Whether the request may go on at once: a replica can take it and nobody waits. Then `leave` must follow."""
        if self._waiting or not self._has_room():
            return False
        self._num_in_flight[caller] += 1
        return True

    async def wait(self, caller: Caller) -> None:
        """Returns when the request may go on; then `leave` must follow. Raises ApiError 503 where too many wait, or it has waited as long as one may."""
        config = self._model.view.traffic.queue
        if self._is_in_vain():
            raise draining()
        self._make_place(caller, config.max_requests)
        waiter = _Waiter(caller, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(caller, deque()).append(waiter)
        self._start_timer()
        try:
            async with asyncio.timeout(seconds(config.timeout)):
                await waiter.turn
        except TimeoutError:
            self._withdraw(waiter)
            raise waited_too_long(self._name, seconds(config.timeout)) from None
        except BaseException:  # its client has gone, or it had to make place
            self._withdraw(waiter)
            raise

    def leave(self, caller: Caller) -> None:
        """The request has ended, however it did."""
        self._num_in_flight[caller] -= 1
        if self._num_in_flight[caller] <= 0:
            del self._num_in_flight[caller]
        if self._waiting and self._has_room():
            self._release_one()

    def close(self) -> None:
        """The model is gone."""
        self._refuse_all(model_not_found(self._name))

    def _refuse_all(self, error: ApiError) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.turn.done():
                    waiter.turn.set_exception(error)
        self._waiting.clear()

    def _is_in_vain(self) -> bool:
        return num_serving(self._model, asyncio.get_running_loop().time()) == 0 and not self._may_get_replicas()

    @property
    def _name(self) -> str:
        return self._model.view.served_names[0]

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._model.view.traffic.queue.max_requests == 0:
            return num_serving(self._model, now) > 0  # nothing may wait here: it waits in the replicas
        return has_room(self._model, now)

    def _make_place(self, caller: Caller, max_requests: int) -> None:
        """Raises ApiError where there is none for this caller."""
        if len(self) < max_requests:
            return
        most = max(self._waiting, key=self._claim, default=None)
        own_claim = (caller.priority, len(self._waiting.get(caller, ())) + 1)
        if most is None or self._claim(most) <= own_claim:
            raise too_many_waiting(self._name, max_requests)
        last = self._waiting[most][-1]
        self._remove(last)
        if not last.turn.done():  # else its client has just left
            last.turn.set_exception(too_many_waiting(self._name, max_requests))

    def _claim(self, caller: Caller) -> tuple[int, int]:
        return caller.priority, len(self._waiting[caller])

    def _withdraw(self, waiter: _Waiter) -> None:
        """It waits no more; where its turn had come all the same, the next one has it."""
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self.leave(waiter.caller)
        else:
            self._remove(waiter)

    def _remove(self, waiter: _Waiter) -> None:
        of_caller = self._waiting.get(waiter.caller)
        if of_caller is not None and waiter in of_caller:
            of_caller.remove(waiter)
            self._forget_if_empty(waiter.caller)

    def _forget_if_empty(self, caller: Caller) -> None:
        if not self._waiting[caller]:
            del self._waiting[caller]
        if not self._waiting:
            self._last_turn.clear()

    def _release_one(self) -> None:
        caller = min(self._waiting, key=lambda waiting: (waiting.priority, self._num_in_flight[waiting], self._last_turn.get(waiting, 0)))
        waiter = self._waiting[caller].popleft()
        self._num_turns += 1
        self._last_turn[caller] = self._num_turns
        self._forget_if_empty(caller)
        if not waiter.turn.done():
            self._num_in_flight[caller] += 1
            waiter.turn.set_result(None)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._is_in_vain():
            self._refuse_all(draining())
        budget = RELEASED_PER_TICK * num_serving(self._model, asyncio.get_running_loop().time())
        while self._waiting and budget and self._has_room():
            budget -= 1
            self._release_one()
        if self._waiting:
            self._start_timer()
