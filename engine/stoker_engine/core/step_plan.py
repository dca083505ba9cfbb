"""StepPlan: a step's decision, while it is being made and until its result is there."""

from stoker_engine.core.request import Request
from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput


class StepPlan:
    """Collects who runs and how much of the token budget is left. `sampling` get a token from the step, `prefilling` are in the middle of their prompts.

    It holds the requests themselves: an id may belong to another request when the result comes.
    """

    __slots__ = (
        "_cached",
        "_new_requests",
        "finished_request_ids",
        "num_scheduled_tokens",
        "preempted_request_ids",
        "prefilling",
        "sampling",
        "token_budget",
    )

    def __init__(self, token_budget: int, finished_request_ids: dict[str, None], preempted_request_ids: list[str]) -> None:
        """The ids are those that ended, and that gave their blocks back, since the last step."""
        self.token_budget = token_budget
        self.finished_request_ids = finished_request_ids
        self.preempted_request_ids = preempted_request_ids
        self.num_scheduled_tokens: dict[str, int] = {}
        self.sampling: list[Request] = []
        self.prefilling: list[Request] = []
        self._new_requests: list[NewRequestData] = []
        self._cached = CachedRequestData()

    def add_running(self, request: Request, new_block_ids: list[int], num_new_tokens: int) -> None:
        """A request that the worker knows."""
        cached = self._cached
        cached.request_ids.append(request.request_id)
        cached.new_block_ids.append(new_block_ids)
        cached.num_computed_tokens.append(request.num_computed_tokens)
        self._schedule(request, num_new_tokens)

    def add_admitted(self, request: Request, block_ids: list[int], num_new_tokens: int) -> None:
        """A request that the worker does not know, or no longer: it gets everything."""
        wire = request.wire
        self._new_requests.append(
            NewRequestData(
                request_id=request.request_id,
                token_ids=request.sequence.token_ids.copy(),
                num_prompt_tokens=request.num_prompt_tokens,
                sampling_params=wire.sampling_params,
                eos_token_ids=wire.eos_token_ids,
                bad_words_token_ids=wire.bad_words_token_ids,
                block_ids=block_ids,
                num_computed_tokens=request.num_computed_tokens,
            )
        )
        self._schedule(request, num_new_tokens)

    def withdraw(self, request: Request) -> bool:
        """Undoes `add_running`: the tokens go back to the budget. False where the request is not in the plan."""
        num_new_tokens = self.num_scheduled_tokens.pop(request.request_id, None)
        if num_new_tokens is None:
            return False
        self.token_budget += num_new_tokens
        request.num_computed_tokens -= num_new_tokens
        if request in self.sampling:
            self.sampling.remove(request)
            request.num_output_placeholders -= 1
        else:
            self.prefilling.remove(request)
        cached = self._cached
        index = cached.request_ids.index(request.request_id)
        del cached.request_ids[index], cached.new_block_ids[index], cached.num_computed_tokens[index]
        return True

    def build(self) -> SchedulerOutput:
        return SchedulerOutput(
            new_requests=self._new_requests,
            cached_requests=self._cached,
            num_scheduled_tokens=self.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(self.num_scheduled_tokens.values()),
            finished_request_ids=list(self.finished_request_ids),
            preempted_request_ids=self.preempted_request_ids,
        )

    def _schedule(self, request: Request, num_new_tokens: int) -> None:
        self.num_scheduled_tokens[request.request_id] = num_new_tokens
        self.token_budget -= num_new_tokens
        num_computed_tokens = request.num_computed_tokens + num_new_tokens
        request.num_computed_tokens = num_computed_tokens
        if num_computed_tokens == request.num_tokens + request.num_output_placeholders:
            request.num_output_placeholders += 1
            self.sampling.append(request)
        else:
            self.prefilling.append(request)
