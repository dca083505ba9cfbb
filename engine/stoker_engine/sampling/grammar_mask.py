"""What grammars allow, as bitmasks: bit i % 8 of byte i // 8 is set where token i may come next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

NO_BITMASKS: Mapping[int, bytes] = MappingProxyType({})


def rows_of(bitmasks: Mapping[str, bytes], request_ids: Sequence[str]) -> dict[int, bytes]:
    """The bitmasks by the rows in which their requests stand; a request without a row has none."""
    return {row: bitmasks[request_id] for row, request_id in enumerate(request_ids) if request_id in bitmasks} if bitmasks else {}


def apply_bitmasks(logits: Tensor, bitmasks: Mapping[int, bytes]) -> None:
    """Changes logits, float32 [rows, vocabulary], in place: what a row's bitmask does not allow becomes -infinity."""
    if not bitmasks:
        return
    if logits.device.type == "cpu":
        rows = logits.numpy()
        for row, bitmask in bitmasks.items():
            _forbid(rows[row], _read(bitmask, logits.shape[1]))
        return
    forbidden = torch.from_numpy(~np.stack([_allowed(bitmask, logits.shape[1]) for bitmask in bitmasks.values()])).to(logits.device)
    masked = torch.tensor(list(bitmasks), dtype=torch.int64, device=logits.device)
    logits[masked] = logits[masked].masked_fill(forbidden, -torch.inf)


@dataclass(frozen=True, slots=True)
class _TokenIds:
    """Those that are allowed, or those that are not, whichever are fewer."""

    token_ids: npt.NDArray[np.intp]
    are_allowed: bool


@lru_cache(maxsize=64)
def _read(bitmask: bytes, vocab_size: int) -> _TokenIds:
    """Kept, since inside a string, where most tokens are, one bitmask follows the other unchanged. At most 200 kB each with a vocabulary of 49,152."""
    allowed = _allowed(bitmask, vocab_size)
    if 2 * np.count_nonzero(allowed) <= vocab_size:
        return _TokenIds(np.flatnonzero(allowed), are_allowed=True)
    return _TokenIds(np.flatnonzero(~allowed), are_allowed=False)


def _forbid(row: npt.NDArray[np.float32], known: _TokenIds) -> None:
    if known.are_allowed:
        kept = row[known.token_ids]
        row.fill(-np.inf)
        row[known.token_ids] = kept
    else:
        row[known.token_ids] = -np.inf


def _allowed(bitmask: bytes, vocab_size: int) -> npt.NDArray[np.bool_]:
    """[vocabulary]; ids that the bitmask is too short for are forbidden."""
    return np.unpackbits(np.frombuffer(bitmask, dtype=np.uint8), count=vocab_size, bitorder="little").view(np.bool_)
