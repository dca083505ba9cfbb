"""ModelRunnerOutput: one forward's tokens and log probabilities."""

from dataclasses import dataclass, field

from stoker_engine.protocol import LogprobsArrays, LogprobsLists

NOT_FINITE = "the model's logits are not finite (NaN or infinity)"
"""The failure that is counted as corrupted."""
NOTHING_ALLOWED = "no token is allowed: the request's restrictions exclude the whole vocabulary"
OUT_OF_RANGE = "the request's penalties take the model's logits out of the range of float32"


@dataclass(slots=True)
class ModelRunnerOutput:
    """Keyed by request id. A request in the middle of its prefill has no entry in `sampled_token_ids`.

    `failures` are requests whose step failed alone (NaN logits, say), with the reason: they end with FinishReason.ERROR and sample nothing.
    """

    sampled_token_ids: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, LogprobsLists] = field(default_factory=dict)
    prompt_logprobs: dict[str, LogprobsArrays] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
