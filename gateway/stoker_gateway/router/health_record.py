"""Passive ejection: a replica that fails again and again gets nothing for a while, and then only once it says itself that it is ready."""

EJECT_AFTER = 3
"""Failures in a row."""

FIRST_SECONDS = 4.0
MAX_DOUBLINGS = 3
"""4, 8, 16, then 32 seconds."""

CHECK_AHEAD_SECONDS = 4.0
"""So long before an ejection ends the replica is asked whether it is ready: longer than the second to the next look and the two that an answer may take."""

POSTPONE_SECONDS = 5.0
"""So much longer it lasts where it is not: until after the next answer, also where that does not come."""


class HealthRecord:
    """Of one replica. Times are seconds of a steady clock."""

    __slots__ = ("ejected_until", "num_ejections", "num_failures")

    def __init__(self) -> None:
        self.num_failures = 0
        self.num_ejections = 0
        """In a row: not one request succeeded between them."""
        self.ejected_until = 0.0

    def is_ejected(self, now: float) -> bool:
        """Until `readmit`, or until its time is over."""
        return now < self.ejected_until

    def must_be_checked(self, now: float) -> bool:
        """Whether its ejection would end soon."""
        return 0.0 < self.ejected_until - now <= CHECK_AHEAD_SECONDS

    def failed(self, now: float) -> bool:
        """No connection, an answer cut off, or a 5xx that says it is broken; whether that ejects it. Those of requests it had before then say nothing new."""
        self.num_failures += 1
        if self.num_failures < EJECT_AFTER or self.is_ejected(now):
            return False
        self.ejected_until = now + FIRST_SECONDS * 2 ** min(self.num_ejections, MAX_DOUBLINGS)
        self.num_ejections += 1
        return True

    def suspect(self) -> None:
        """The next failure ejects it, whatever was before."""
        self.num_failures = max(self.num_failures, EJECT_AFTER - 1)

    def succeeded(self) -> None:
        self.num_failures = self.num_ejections = 0

    def readmit(self) -> None:
        """It says itself that it is ready: it gets requests again, and the next failure ejects it."""
        self.ejected_until = 0.0
        self.num_failures = min(self.num_failures, EJECT_AFTER - 1)

    def postpone(self, now: float) -> None:
        """It does not say that it is ready."""
        self.ejected_until = now + POSTPONE_SECONDS
