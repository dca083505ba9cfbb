"""RMSNorm, alone and together with the residual addition before it."""

from dataclasses import dataclass

from torch import Tensor

from stoker_kernels import Ops


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Root mean square norm of [T, hidden] rows, scaled by weight [hidden]."""

    weight: Tensor
    epsilon: float
    ops: Ops

    def __call__(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, self.weight, self.epsilon)

    def add_and_norm(self, x: Tensor, residual: Tensor) -> Tensor:
        """Adds x to residual in place and returns the norm of the sum."""
        return self.ops.fused_add_rms_norm(x, residual, self.weight, self.epsilon)
