"""BatchWindow: how much of a batch the engine has at once. The rest waits here, whatever the batch's size."""

from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreRequest

MAX_REQUESTS = 4096
"""More than any engine runs in a step, fewer than a client may leave unanswered."""
MAX_PROMPT_TOKENS = 4 << 20
"""20 MB on the wire, where a client may leave 64 MB unanswered."""


class BatchWindow:
    """The requests in flight and the tokens of their prompts; a request with n choices counts n times."""

    def __init__(self) -> None:
        self._num_requests = 0
        self._num_prompt_tokens = 0

    def has_room_for(self, request: EngineCoreRequest) -> bool:
        """One alone always has."""
        n = request.sampling_params.n
        fits = self._num_requests + n <= MAX_REQUESTS and self._num_prompt_tokens + n * len(request.prompt_token_ids) <= MAX_PROMPT_TOKENS
        return fits or not self._num_requests

    def sent(self, request: EngineCoreRequest) -> None:
        n = request.sampling_params.n
        self._num_requests += n
        self._num_prompt_tokens += n * len(request.prompt_token_ids)

    def finished(self, output: RequestOutput) -> None:
        self._num_requests -= len(output.outputs)
        self._num_prompt_tokens -= len(output.outputs) * len(output.prompt_token_ids)
