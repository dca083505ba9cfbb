"""Which implementation each op uses on a device: decided once, when the first op runs there, and logged."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stoker_kernels import attention_plan, torch_ops
from stoker_kernels.attention_plan import AttentionPlan

logger = logging.getLogger(__name__)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of every op. `plan_paged_attention` and `paged_attention` go together: one makes the plan that the other follows."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    fused_add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    rotary_embedding: Callable[[Tensor, Tensor], None]
    silu_and_mul: Callable[[Tensor], Tensor]
    reshape_and_cache: Callable[[Tensor, Tensor, Tensor], None]
    plan_paged_attention: Callable[[Int64s, Int64s, npt.NDArray[np.integer], Tensor], AttentionPlan]
    paged_attention: Callable[[Tensor, Tensor, AttentionPlan, float], Tensor]


TORCH_OPS = Ops(
    rms_norm=torch_ops.rms_norm,
    fused_add_rms_norm=torch_ops.fused_add_rms_norm,
    rotary_embedding=torch_ops.rotary_embedding,
    silu_and_mul=torch_ops.silu_and_mul,
    reshape_and_cache=torch_ops.reshape_and_cache,
    plan_paged_attention=attention_plan.plan_attention,
    paged_attention=torch_ops.paged_attention,
)

_OPS_BY_DEVICE_TYPE = {"cpu": TORCH_OPS, "cuda": TORCH_OPS}


@cache
def ops_for(device_type: str) -> Ops:
    """The ops of a device type (`cpu`, `cuda`). Raises ValueError for one without any."""
    if device_type not in _OPS_BY_DEVICE_TYPE:
        raise ValueError(f"no ops for device type {device_type!r}; there are ops for {', '.join(_OPS_BY_DEVICE_TYPE)}")
    ops = _OPS_BY_DEVICE_TYPE[device_type]
    chosen = ", ".join(f"{field.name}={getattr(ops, field.name).__module__.rpartition('.')[2]}" for field in fields(ops))
    logger.info("ops on %s: %s", device_type, chosen)
    return ops
