"""The ops that Stoker's engine runs on a device: plain torch references, and faster implementations behind one choice.

`choose_ops` returns the implementation for a model; reference/ says what each op computes, README.md the shapes.
"""

from stoker_kernels.cpu.library import InstructionSetError
from stoker_kernels.dispatch import Ops, QuantizationError, choose_ops

__all__ = ["InstructionSetError", "Ops", "QuantizationError", "choose_ops"]
