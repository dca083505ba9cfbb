"""Log probabilities as lists: the token at hand first, then those asked for, most likely first; ranks count the tokens that are at least as likely."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stoker_engine.protocol import LogprobsLists
from stoker_engine.sampling_params import ALL_LOGPROBS


def top_logprobs(logprobs: Tensor, token_ids: Tensor, num_top: int) -> LogprobsLists:
    """The `num_top` most likely tokens of each row; ALL_LOGPROBS means the vocabulary. logprobs: float32 [rows, vocabulary]; token_ids: int64 [rows]."""
    if num_top == ALL_LOGPROBS:
        values, indices = torch.sort(logprobs, dim=-1, descending=True, stable=True)
    else:
        values, indices = logprobs.topk(min(num_top, logprobs.shape[1]), dim=-1)
    return _to_lists(logprobs, token_ids, values, indices)


def chosen_logprobs(logprobs: Tensor, token_ids: Tensor, chosen: Sequence[int]) -> LogprobsLists:
    """Exactly the tokens `chosen`, each in the vocabulary, in their order. Arguments as in top_logprobs."""
    indices = torch.tensor(chosen, device=logprobs.device).expand(len(logprobs), -1)
    return _to_lists(logprobs, token_ids, logprobs.gather(1, indices), indices)


def extend_logprobs(logprobs: LogprobsLists, more: LogprobsLists) -> None:
    """Appends later positions."""
    logprobs.token_ids.extend(more.token_ids)
    logprobs.logprobs.extend(more.logprobs)
    logprobs.ranks.extend(more.ranks)


def _to_lists(logprobs: Tensor, token_ids: Tensor, values: Tensor, indices: Tensor) -> LogprobsLists:
    own = logprobs.gather(1, token_ids[:, None])
    ranks = (logprobs >= own).sum(dim=-1)
    return LogprobsLists(
        token_ids=torch.cat([token_ids[:, None], indices], dim=1).tolist(),
        logprobs=torch.cat([own, values], dim=1).tolist(),
        ranks=ranks.tolist(),
    )
