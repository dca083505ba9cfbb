"""What the operator is doing, for those who ask from another thread: plain values, each written by the event loop alone."""

import enum
import time
from dataclasses import dataclass, field


class Phase(enum.Enum):
    """Where `stoker operator` is in its life."""

    STARTING = "starting"
    WAITING_FOR_CRD = "waiting for the CustomResourceDefinition; install it with `stoker crd | kubectl apply -f -`"
    STANDBY = "standby: waiting for the Lease"
    LISTING = "leading: listing everything for the first time"
    LEADING = "leading"
    STOPPING = "stopping"


@dataclass(slots=True)
class Progress:
    """Times are time.monotonic()'s."""

    phase: Phase = Phase.STARTING
    loop_tick: float = field(default_factory=time.monotonic)
    """When the event loop last ran on time."""
    last_seen: float = field(default_factory=time.monotonic)
    """When the API server last told us anything."""
    last_done: float = field(default_factory=time.monotonic)
    """When a worker last finished a key, or there was nothing to do."""
    queue_age: float = 0.0

    def tick(self, queue_age: float, work_age: float) -> None:
        """Called about once a second by the event loop."""
        self.loop_tick = time.monotonic()
        self.queue_age = max(queue_age, work_age)
        if self.queue_age == 0.0:
            self.last_done = self.loop_tick

    def seen(self) -> None:
        self.last_seen = time.monotonic()

    def done(self) -> None:
        self.last_done = time.monotonic()
