"""EnginePulse: what the handshake thread tells the api about the main loop, once a second."""

import time

from stoker_engine.protocol import Heartbeat


class EnginePulse:
    """Written by the main loop, read by the handshake thread; each field is one atomic store."""

    __slots__ = ("_last_turn", "_step_started", "num_requests", "num_steps")

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_requests = 0
        self._last_turn: float | None = None
        self._step_started: float | None = None

    def turn(self) -> None:
        """The loop is about to look at its input."""
        self._last_turn = time.monotonic()

    def idle(self) -> None:
        """The loop waits for input: no age grows."""
        self._last_turn = None

    def step_begins(self) -> None:
        self._step_started = time.monotonic()

    def step_ended(self, num_steps: int, num_requests: int) -> None:
        self.num_steps = num_steps
        self.num_requests = num_requests
        self._step_started = None

    def heartbeat(self) -> Heartbeat:
        now = time.monotonic()
        last_turn, step_started = self._last_turn, self._step_started
        return Heartbeat(
            num_steps=self.num_steps,
            loop_age=0.0 if last_turn is None else now - last_turn,
            step_age=0.0 if step_started is None else now - step_started,
            num_requests=self.num_requests,
        )
