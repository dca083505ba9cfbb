"""SamplingMetadata: what a batch's rows ask of sampling, built when the batch changes and used until it changes again."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker_engine.sampling.logit_edits import LogitEdits
from stoker_engine.sampling.penalties import Penalties
from stoker_engine.sampling.sampling_state import SamplingState


@dataclass(frozen=True, slots=True)
class SamplingMetadata:
    """`edits` and `penalties` are None where no row has any. `logprob_rows` are told log probabilities; `following` need to know what they put out."""

    states: tuple[SamplingState, ...]
    edits: LogitEdits | None
    penalties: Penalties | None
    logprob_rows: tuple[int, ...]
    following: tuple[tuple[int, SamplingState], ...]

    @property
    def changes_logits(self) -> bool:
        return self.edits is not None or self.penalties is not None


def build_sampling_metadata(states: Sequence[SamplingState], vocab_size: int, device: torch.device) -> SamplingMetadata:
    edits = LogitEdits(states, vocab_size, device)
    return SamplingMetadata(
        states=tuple(states),
        edits=None if edits.is_empty else edits,
        penalties=_penalties(states),
        logprob_rows=tuple(row for row, state in enumerate(states) if state.params.logprobs is not None or state.params.logprob_token_ids is not None),
        following=tuple((row, state) for row, state in enumerate(states) if state.follows_output),
    )


def _penalties(states: Sequence[SamplingState]) -> Penalties | None:
    rows = [(row, state, state.token_counts) for row, state in enumerate(states) if state.token_counts is not None]
    if not rows:
        return None
    strengths = [(s.params.repetition_penalty, s.params.frequency_penalty, s.params.presence_penalty) for _, s, _ in rows]
    return Penalties([row for row, _, _ in rows], [counts for _, _, counts in rows], strengths)
