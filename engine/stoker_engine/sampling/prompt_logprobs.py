"""Prompt log probabilities, collected over the chunks of a prefill."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stoker_engine.core.model_runner_output import NOT_FINITE
from stoker_engine.core.scheduler_output import NewRequestData
from stoker_engine.protocol import LogprobsArrays
from stoker_engine.sampling.logprobs import concatenate_logprobs, top_logprobs_arrays

MAX_LOGITS_BYTES = 64 << 20
"""Of [tokens, vocabulary] in float32, the most that exists at once, and as much again for their log probabilities."""


@dataclass(slots=True)
class _Prompt:
    token_ids: list[int]
    num_top: int
    num_collected: int = 0
    pieces: list[LogprobsArrays] = field(default_factory=list)


class PromptLogprobs:
    """The requests that still want log probabilities of their prompt: one position for each prompt token but the first."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._prompts: dict[str, _Prompt] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._prompts

    def add(self, request: NewRequestData) -> None:
        """A request that has output was told its prompt's log probabilities before it was preempted."""
        num_top = request.sampling_params.prompt_logprobs
        if num_top is not None and len(request.token_ids) == request.num_prompt_tokens:
            self._prompts[request.request_id] = _Prompt(request.token_ids, num_top)

    def remove(self, request_id: str) -> None:
        self._prompts.pop(request_id, None)

    def collect(self, request_id: str, start: int, hidden_states: Tensor, compute_logits: Callable[[Tensor], Tensor]) -> str | None:
        """Takes in a chunk that begins at position `start`; hidden_states: [chunk, hidden]. Returns why the request fails, or None.

        Each position tells the log probability of the token after it.
        """
        prompt = self._prompts[request_id]
        if start != prompt.num_collected:
            return f"prompt_logprobs: computation began at position {start}, after {prompt.num_collected} positions"
        targets = torch.tensor(prompt.token_ids[start + 1 : start + 1 + len(hidden_states)], dtype=torch.int64, device=hidden_states.device)
        size = max(1, MAX_LOGITS_BYTES // (4 * self._vocab_size))
        for first in range(0, len(targets), size):
            piece = targets[first : first + size]
            logits = compute_logits(hidden_states[first : first + len(piece)])[:, : self._vocab_size]
            if not bool(torch.isfinite(logits).all()):
                return NOT_FINITE
            prompt.pieces.append(top_logprobs_arrays(torch.log_softmax(logits.float(), dim=-1), piece, prompt.num_top))
            prompt.num_collected += len(piece)
        return None

    def take(self, request_id: str) -> LogprobsArrays:
        """The whole prompt's, once."""
        return concatenate_logprobs(self._prompts.pop(request_id).pieces)
