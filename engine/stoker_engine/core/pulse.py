"""EnginePulse: what the handshake thread, the health server and the watchdog know of the main loop."""

from stoker_engine.protocol import HEARTBEAT_SECONDS, Heartbeat
from stoker_engine.running_clock import RunningClock

MAX_GAP_SECONDS = 2 * HEARTBEAT_SECONDS
"""The clock is ticked at least once per heartbeat; what is beyond this between two ticks the process was stopped for."""


class EnginePulse:
    """Written by the main loop, read by other threads; each field is one atomic store.

    `num_steps` counts the steps that computed something, `num_requests` the requests that the loop works on: none while it waits for input.
    `last_turn` numbers the loop's looks at its input, None while it waits there. Ages are told by `clock`, which the handshake thread ticks.
    """

    __slots__ = ("_num_turns", "_step_started", "_turned", "clock", "last_turn", "num_requests", "num_steps")

    def __init__(self) -> None:
        self.clock = RunningClock(MAX_GAP_SECONDS)
        self.num_steps = 0
        self.num_requests = 0
        self.last_turn: int | None = None
        self._num_turns = 0
        self._turned: float | None = None
        self._step_started: float | None = None

    def turn(self) -> None:
        """The loop is about to look at its input."""
        self._turned = self.clock.now()
        self._num_turns += 1
        self.last_turn = self._num_turns

    def idle(self) -> None:
        """The loop waits for input: no age grows, and nothing is expected of it."""
        self.last_turn = self._turned = None
        self.num_requests = 0

    def step_begins(self, num_requests: int) -> None:
        self.num_requests = num_requests
        self._step_started = self.clock.now()

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
        turned, step_started = self._turned, self._step_started
        now = self.clock.now()
        return Heartbeat(
            num_steps=self.num_steps,
            loop_age=0.0 if turned is None else max(0.0, now - turned),
            step_age=0.0 if step_started is None else max(0.0, now - step_started),
            num_requests=self.num_requests,
        )
