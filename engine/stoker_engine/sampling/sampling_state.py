"""What sampling remembers of one request between steps."""

from dataclasses import dataclass

from stoker_engine.core.scheduler_output import NewRequestData
from stoker_engine.sampling.bad_words import BadWords
from stoker_engine.sampling.noise import request_key
from stoker_engine.sampling.penalties import TokenCounts
from stoker_engine.sampling_params import SamplingParams


@dataclass(slots=True)
class SamplingState:
    """`end_token_ids` may not be sampled before min_tokens. `bad_words` and `token_counts` are None where the request needs none.

    `output_token_ids` goes on after the start only where the request `follows_output`: nobody else reads it.
    """

    params: SamplingParams
    noise_key: int
    output_token_ids: list[int]
    end_token_ids: list[int]
    bad_words: BadWords | None
    token_counts: TokenCounts | None

    @property
    def follows_output(self) -> bool:
        """Whether what may be sampled next depends on what was sampled before."""
        return self.params.min_tokens > 0 or self.bad_words is not None or self.token_counts is not None

    @property
    def is_below_min_tokens(self) -> bool:
        return len(self.output_token_ids) < self.params.min_tokens

    def append(self, token_id: int) -> None:
        self.output_token_ids.append(token_id)
        if self.token_counts is not None:
            self.token_counts.add_output(token_id)


def new_sampling_state(request: NewRequestData, vocab_size: int, engine_seed: int) -> SamplingState:
    """A request's state; output from before a preemption counts as output."""
    params = request.sampling_params
    output_token_ids = request.token_ids[request.num_prompt_tokens :]
    token_counts = None
    if params.repetition_penalty != 1.0:
        token_counts = TokenCounts(request.token_ids[: request.num_prompt_tokens], output_token_ids)
    elif params.frequency_penalty or params.presence_penalty:
        token_counts = TokenCounts((), output_token_ids)
    return SamplingState(
        params=params,
        noise_key=request_key(params.seed, engine_seed, request.request_id),
        output_token_ids=output_token_ids,
        end_token_ids=[token_id for token_id in {*request.eos_token_ids, *params.stop_token_ids} if 0 <= token_id < vocab_size],
        bad_words=BadWords(request.bad_words_token_ids, vocab_size) if request.bad_words_token_ids else None,
        token_counts=token_counts,
    )
