"""Admission: what a request has to pass before a replica is chosen for it."""

import time
from collections.abc import Callable, Sequence

from stoker_gateway.http.api_key import key_of
from stoker_gateway.router.admission.caller import ANYONE, Caller
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.admission.model_queue import ModelQueue
from stoker_gateway.router.fleet import FleetChange
from stoker_gateway.router.served_model import ServedModel
from stoker_gateway.router.upstream_answer import Header


class Admission:
    """Without `keys`, none are asked for."""

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys
        self._queues: dict[str, ModelQueue] = {}
        self.may_get_replicas: Callable[[], bool] = lambda: True
        """Whether a model that has no replica may still get one: else nobody waits for it."""

    @property
    def asks_for_key(self) -> bool:
        return self._keys is not None

    @property
    def key_names(self) -> frozenset[str]:
        return frozenset() if self._keys is None else self._keys.names

    @property
    def key_faults(self) -> tuple[str, ...]:
        return () if self._keys is None else self._keys.faults

    def caller(self, headers: Sequence[Header]) -> Caller:
        """Who asks. Raises ApiError 401."""
        return ANYONE if self._keys is None else self._keys.find(key_of(headers))

    def start_request(self, caller: Caller) -> None:
        """Takes one request from the caller's budget. Raises ApiError 429 where that is used up."""
        if (refusal := caller.start_request(time.monotonic())) is not None:
            raise refusal

    def queue(self, model: ServedModel) -> ModelQueue:
        if (queue := self._queues.get(model.view.uid)) is None:
            queue = self._queues[model.view.uid] = ModelQueue(model, lambda: self.may_get_replicas())
        return queue

    def num_waiting(self, model: ServedModel) -> int:
        queue = self._queues.get(model.view.uid)
        return 0 if queue is None else len(queue)

    def on_fleet_change(self, change: FleetChange) -> None:
        """Whoever waits for a model that is gone is told."""
        for model in change.models:
            if (queue := self._queues.pop(model.view.uid, None)) is not None:
                queue.close()
