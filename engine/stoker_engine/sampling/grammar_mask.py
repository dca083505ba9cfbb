"""What grammars allow, as bitmasks: bit i % 8 of byte i // 8 is set where token i may come next."""

from collections.abc import Mapping, Sequence
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
        _apply_in_place(logits.numpy(), bitmasks)
        return
    ceilings = torch.from_numpy(np.stack([_ceilings(bitmask, logits.shape[1]) for bitmask in bitmasks.values()])).to(logits.device)
    rows = torch.tensor(list(bitmasks), dtype=torch.int64, device=logits.device)
    logits[rows] = torch.minimum(logits[rows], ceilings)


def _apply_in_place(logits: npt.NDArray[np.float32], bitmasks: Mapping[int, bytes]) -> None:
    """Without a copy of any row, and without a branch for any bit."""
    for row, bitmask in bitmasks.items():
        np.minimum(logits[row], _ceilings(bitmask, logits.shape[1]), out=logits[row])


def _ceilings(bitmask: bytes, vocab_size: int) -> npt.NDArray[np.float32]:
    """[vocabulary]: infinity where a token is allowed, -infinity where it is not. Ids that the bitmask is too short for are forbidden."""
    ceilings: npt.NDArray[np.float32] = _CEILINGS_BY_BYTE[np.frombuffer(bitmask, dtype=np.uint8)].reshape(-1)[:vocab_size]
    missing = vocab_size - len(ceilings)
    return ceilings if not missing else np.pad(ceilings, (0, missing), constant_values=-np.inf)


_CEILINGS_BY_BYTE = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1, np.inf, -np.inf).astype(np.float32)
"""[256, 8]"""
