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
    forbidden = torch.from_numpy(np.stack([_forbidden(bitmask, logits.shape[1]) for bitmask in bitmasks.values()])).to(logits.device)
    rows = torch.tensor(list(bitmasks), dtype=torch.int64, device=logits.device)
    logits[rows] = logits[rows].masked_fill(forbidden, -torch.inf)


def _forbidden(bitmask: bytes, vocab_size: int) -> npt.NDArray[np.bool_]:
    """[vocabulary]; ids that the bitmask is too short for are forbidden."""
    bits = np.unpackbits(np.frombuffer(bitmask, dtype=np.uint8), count=vocab_size, bitorder="little")
    return np.logical_not(bits)
