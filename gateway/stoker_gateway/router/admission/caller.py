"""Caller: who sends requests, known by an API key."""

from stoker_gateway.openai.errors import ApiError
from stoker_gateway.router.admission.budget import Budget
from stoker_gateway.router.admission.key_file import KeyEntry
from stoker_gateway.router.admission.refusals import over_budget


class Caller:
    """The same object as long as the file has its name. Times are seconds of a steady clock. Each gateway keeps budgets of its own."""

    __slots__ = ("_requests", "_tokens", "name", "priority")

    def __init__(self, name: str = "", priority: int = 0) -> None:
        self.name = name
        self.priority = priority
        """Lower ones go first, as in the engine."""
        self._requests: Budget | None = None
        self._tokens: Budget | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether anyone wants to know what its answers cost."""
        return self._tokens is not None

    def update(self, entry: KeyEntry, now: float) -> None:
        """Takes over what the file says; what it has used stays used."""
        self.priority = entry.priority
        self._requests = _changed(self._requests, entry.requests_per_minute, now)
        self._tokens = _changed(self._tokens, entry.tokens_per_minute, now)

    def start_request(self, now: float) -> ApiError | None:
        """Takes one of its requests, or says why it may not have it."""
        for budget, unit in ((self._requests, "requests"), (self._tokens, "tokens")):
            if budget is not None and (wait := budget.wait_seconds(now)) > 0:
                return over_budget(unit, wait)
        if self._requests is not None:
            self._requests.take(1, now)
        return None

    def charge(self, num_tokens: int, now: float) -> None:
        """What a request has cost, known when it has ended."""
        if self._tokens is not None:
            self._tokens.take(num_tokens, now)


ANYONE = Caller()
"""Everybody, where no keys are asked for."""


def _changed(budget: Budget | None, per_minute: int | None, now: float) -> Budget | None:
    if per_minute is None:
        return None
    if budget is None:
        return Budget(per_minute, now)
    budget.change(per_minute, now)
    return budget
