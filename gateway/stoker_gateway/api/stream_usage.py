"""Counts tokens over a stream, for the usage that its chunks carry."""

from msgspec import UNSET, UnsetType

from stoker_engine.outputs import RequestOutput
from stoker_gateway.openai.protocol import Usage, make_usage
from stoker_gateway.openai.request import GenerationRequest


class StreamUsage:
    """Sums over the prompts of one HTTP request. The token that a prompt-only request (max_tokens 0) samples is not counted."""

    def __init__(self, request: GenerationRequest) -> None:
        self._counts_output = request.max_tokens != 0
        self._is_wanted = request.include_usage
        self._is_continuous = request.continuous_usage
        self._latest: dict[int, RequestOutput] = {}

    def update(self, prompt_index: int, output: RequestOutput) -> None:
        self._latest[prompt_index] = output

    @property
    def total(self) -> Usage:
        outputs = self._latest.values()
        return make_usage(
            sum(len(output.prompt_token_ids) for output in outputs),
            sum(output.num_output_tokens for output in outputs) if self._counts_output else 0,
            sum(output.num_cached_tokens for output in outputs),
        )

    def of_chunk(self) -> Usage | UnsetType | None:
        """What an ordinary chunk carries: the count so far, null, or no usage field."""
        if self._is_continuous:
            return self.total
        return None if self._is_wanted else UNSET
