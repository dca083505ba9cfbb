"""Lifecycle: the gateway serves, then leaves: told to stop, it says so and goes on for a while, then refuses new work and drains."""

import asyncio
from collections.abc import Callable

from stoker_gateway.http.drain import Drain, StopStage


class Lifecycle:
    """`drain` has what is in flight. Whoever routes to this gateway learns during `delay_seconds` that it is not ready any more."""

    def __init__(self, drain: Drain, delay_seconds: float) -> None:
        self.drain = drain
        self._delay_seconds = delay_seconds
        self._is_leaving = False
        self.on_drain: Callable[[], None] = lambda: None
        """Called when the drain begins."""

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving or self.drain.is_draining

    def request_stop(self) -> StopStage:
        """One signal more: the first drains, after the delay; the second aborts; the third is for the caller to act on."""
        if self._is_leaving:
            return self.drain.request_stop() if self.drain.is_draining else self._abort()
        self._is_leaving = True
        if self._delay_seconds:
            asyncio.get_running_loop().call_later(self._delay_seconds, self._begin_drain)
        else:
            self._begin_drain()
        return StopStage.DRAINING

    def request_abort(self) -> None:
        self._is_leaving = True
        self.drain.request_abort()

    def _abort(self) -> StopStage:
        self.drain.request_abort()
        return self.drain.stage

    def _begin_drain(self) -> None:
        if not self.drain.is_draining:
            self.on_drain()
            self.drain.request_stop()
