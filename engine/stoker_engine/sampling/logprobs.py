"""Log probabilities: the token at hand first, then those asked for, most likely first; ranks count the tokens that are at least as likely."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stoker_engine.protocol import LogprobsArrays, LogprobsLists
from stoker_engine.sampling_params import ALL_LOGPROBS


def top_logprobs(logprobs: Tensor, token_ids: Tensor, num_top: int) -> LogprobsLists:
    """The `num_top` most likely tokens of each row; ALL_LOGPROBS means the vocabulary. logprobs: float32 [rows, vocabulary]; token_ids: int64 [rows]."""
    return _to_lists(logprobs, token_ids, *_top(logprobs, num_top))


def top_logprobs_arrays(logprobs: Tensor, token_ids: Tensor, num_top: int) -> LogprobsArrays:
    """top_logprobs as arrays: what many rows are sent as."""
    values, indices = _top(logprobs, num_top)
    own, ranks = _own(logprobs, token_ids)
    return LogprobsArrays(
        token_ids=torch.cat([token_ids[:, None], indices], dim=1).to(torch.int32).cpu().numpy(),
        logprobs=torch.cat([own, values], dim=1).cpu().numpy(),
        ranks=ranks.to(torch.int32).cpu().numpy(),
    )


def chosen_logprobs(logprobs: Tensor, token_ids: Tensor, chosen: Sequence[int]) -> LogprobsLists:
    """Exactly the tokens `chosen`, each in the vocabulary, in their order. Arguments as in top_logprobs."""
    indices = torch.tensor(chosen, device=logprobs.device).expand(len(logprobs), -1)
    return _to_lists(logprobs, token_ids, logprobs.gather(1, indices), indices)


def concatenate_logprobs(parts: Sequence[LogprobsArrays]) -> LogprobsArrays:
    """The positions of all parts, in order."""
    if not parts:
        return LogprobsArrays(np.empty((0, 1), np.int32), np.empty((0, 1), np.float32), np.empty(0, np.int32))
    return LogprobsArrays(
        token_ids=np.concatenate([part.token_ids for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        ranks=np.concatenate([part.ranks for part in parts]),
    )


def _top(logprobs: Tensor, num_top: int) -> tuple[Tensor, Tensor]:
    """Values and token ids, [rows, num_top]."""
    if num_top == ALL_LOGPROBS:
        values, indices = torch.sort(logprobs, dim=-1, descending=True, stable=True)
    else:
        values, indices = logprobs.topk(min(num_top, logprobs.shape[1]), dim=-1)
    return values, indices


def _own(logprobs: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's own token's log probability [rows, 1] and rank [rows]."""
    own = logprobs.gather(1, token_ids[:, None])
    return own, (logprobs >= own).sum(dim=-1)


def _to_lists(logprobs: Tensor, token_ids: Tensor, values: Tensor, indices: Tensor) -> LogprobsLists:
    own, ranks = _own(logprobs, token_ids)
    return LogprobsLists(
        token_ids=torch.cat([token_ids[:, None], indices], dim=1).tolist(),
        logprobs=torch.cat([own, values], dim=1).tolist(),
        ranks=ranks.tolist(),
    )
