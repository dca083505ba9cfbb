"""ModelRunnerOutput: one forward's tokens and log probabilities."""

from dataclasses import dataclass, field

from stoker_engine.protocol import LogprobsArrays, LogprobsLists

NOT_FINITE = "the model's logits are not finite (NaN or infinity)"
"""The failure that is counted as corrupted."""


@dataclass(slots=True)
class ModelRunnerOutput:
    """Keyed by request id. A request in the middle of its prefill has no entry in `sampled_token_ids`.

    `failures` are requests whose step failed alone (NaN logits, say), with the reason: they end with FinishReason.ERROR and sample nothing.
    """

    sampled_token_ids: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, LogprobsLists] = field(default_factory=dict)
    prompt_logprobs: dict[str, LogprobsArrays] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
