"""EnginePulse: what the handshake thread, the health server and the watchdog know of the main loop."""

import time

from stoker_engine.protocol import Heartbeat


class EnginePulse:
    """Written by the main loop, read by other threads; each field is one atomic store.

    `num_steps` counts the steps that computed something, `num_requests` the requests that the loop works on: none while it waits for input.
    `last_turn` is when the loop last looked at its input, None while it waits there.
    """

    __slots__ = ("_step_started", "last_turn", "num_requests", "num_steps")

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_requests = 0
        self.last_turn: float | None = None
        self._step_started: float | None = None

    def turn(self) -> None:
        """The loop is about to look at its input."""
        self.last_turn = time.monotonic()

    def idle(self) -> None:
        """The loop waits for input: no age grows, and nothing is expected of it."""
        self.last_turn = None
        self.num_requests = 0

    def step_begins(self, num_requests: int) -> None:
        self.num_requests = num_requests
        self._step_started = time.monotonic()

    def step_ended(self, num_requests: int) -> None:
        self.num_requests = num_requests
        self._step_started = None

    def computed(self) -> None:
        """The step that has ended computed something."""
        self.num_steps += 1

    @property
    def is_in_step(self) -> bool:
        return self._step_started is not None

    def heartbeat(self) -> Heartbeat:
        now = time.monotonic()
        last_turn, step_started = self.last_turn, self._step_started
        return Heartbeat(
            num_steps=self.num_steps,
            loop_age=0.0 if last_turn is None else now - last_turn,
            step_age=0.0 if step_started is None else now - step_started,
            num_requests=self.num_requests,
        )
