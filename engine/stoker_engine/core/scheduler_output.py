"""SchedulerOutput: one step's decision, as the worker needs it. Block ids index the KV cache; a token's slot is block id × block_size + offset."""

from dataclasses import dataclass, field

from stoker_engine.sampling_params import SamplingParams


@dataclass(slots=True)
class NewRequestData:
    """A request the worker does not know: scheduled for the first time, or again after a preemption.

    `token_ids` are all its tokens so far: the prompt, and the output from before a preemption. `block_ids` is its whole block table.
    Tokens stay out of its repr, which is logged when a step fails.
    """

    request_id: str
    token_ids: list[int] = field(repr=False)
    num_prompt_tokens: int
    sampling_params: SamplingParams
    eos_token_ids: list[int]
    bad_words_token_ids: list[list[int]] = field(repr=False)
    block_ids: list[int]
    num_computed_tokens: int


@dataclass(slots=True)
class CachedRequestData:
    """Requests the worker knows, in parallel lists: blocks added in this step, and tokens computed before it."""

    request_ids: list[str] = field(default_factory=list)
    new_block_ids: list[list[int]] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class SchedulerOutput:
    """One step. `num_scheduled_tokens` has each request of the step, in batch order, with at least 1 token.

    The worker drops the state of `finished_request_ids` and `preempted_request_ids` before anything else.
    """

    new_requests: list[NewRequestData]
    cached_requests: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    finished_request_ids: list[str]
    preempted_request_ids: list[str]
