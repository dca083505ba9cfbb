"""Passive ejection: a replica that fails again and again gets nothing for a while, then one chance at a time."""

EJECT_AFTER = 3
"""Failures in a row."""

FIRST_SECONDS = 2.0
MAX_SECONDS = 30.0


class HealthRecord:
    """Of one replica. Times are seconds of a steady clock."""

    __slots__ = ("ejected_until", "num_ejections", "num_failures")

    def __init__(self) -> None:
        self.num_failures = 0
        self.num_ejections = 0
        self.ejected_until = 0.0

    def is_ejected(self, now: float) -> bool:
        """Until `readmit`, or until its time is over."""
        return now < self.ejected_until

    def failed(self, now: float) -> None:
        """No connection, an answer cut off, or a 5xx that says it is broken."""
        self.num_failures += 1
        if self.num_failures >= EJECT_AFTER:
            self.ejected_until = now + min(MAX_SECONDS, FIRST_SECONDS * 2**self.num_ejections)
            self.num_ejections += 1

    def succeeded(self) -> None:
        self.num_failures = self.num_ejections = 0

    def readmit(self) -> None:
        """It says itself that it is ready: it gets requests again, and the next failure ejects it."""
        self.ejected_until = 0.0
        self.num_failures = min(self.num_failures, EJECT_AFTER - 1)
