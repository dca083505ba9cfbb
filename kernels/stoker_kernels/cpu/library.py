"""The library of this processor's instruction set, and its functions with their C types."""

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path

from stoker_kernels.cpu.build import instruction_sets, library_path, sources_digest

FORCED_INSTRUCTION_SET = "STOKER_CPU_INSTRUCTION_SET"
"""Environment variable: one of `instruction_sets()`, for tests and comparisons."""
_NEEDED_FLAGS = {
    "avx512_bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512_vnni", "avx512vbmi", "avx2", "fma"},
    "avx2": {"avx2", "fma"},
    "generic": set[str](),
}


class InstructionSetError(ValueError):
    """The forced instruction set is none that there is."""


class UnusableLibraryError(RuntimeError):
    """A library is damaged, or was built from other sources than these."""


class Matrix(Structure):
    """Packed weights [outputs, inputs], their bias, or null, and their scales, null in bfloat16. `format`: a WeightFormat."""

    _fields_ = [("tiles", c_void_p), ("bias", c_void_p), ("scales", c_void_p), ("inputs", c_int64), ("outputs", c_int64), ("format", c_int64)]


class AttentionShape(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("num_heads", "num_kv_heads", "head_dim", "block_size")),
        *(("scale", c_float), ("soft_cap", c_float), ("window", c_int64), ("sinks", c_void_p)),
    ]


class AttentionBatch(Structure):
    _fields_ = [("num_requests", c_int64), ("query_start", c_void_p), ("sequence_lengths", c_void_p), ("block_table", c_void_p), ("table_stride", c_int64)]


class Layer(Structure):
    _fields_ = [
        *(("input_norm", c_void_p), ("qkv", Matrix), ("attention_output", Matrix), ("mlp_norm", c_void_p), ("gate_up", Matrix), ("down", Matrix)),
        ("attention", AttentionShape),
    ]


class Model(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("hidden_size", "intermediate_size", "rotary_half", "num_layers")),
        *(("layers", POINTER(Layer)), ("embedding", c_void_p), ("final_norm", c_void_p), ("cos_sin", c_void_p), ("epsilon", c_float)),
    ]


class Step(Structure):
    _fields_ = [
        *(("num_tokens", c_int64), ("input_ids", c_void_p), ("positions", c_void_p), ("slots", c_void_p)),
        *(("requests", AttentionBatch), ("caches", POINTER(c_void_p)), ("hidden", c_void_p)),
    ]


_I, _P = c_int64, c_void_p
_ARGUMENTS = {
    "stoker_set_num_threads": (_I,),
    "stoker_pack": (_P, _I, _I, _I, _I, _P, _P),
    "stoker_linear": (_P, _I, _I, POINTER(Matrix), _P),
    "stoker_linear_to_floats": (_P, _I, _I, POINTER(Matrix), _P),
    "stoker_linear_add": (_P, _I, _I, POINTER(Matrix), _P),
    "stoker_linear_silu_and_mul": (_P, _I, _I, POINTER(Matrix), _I, _P),
    "stoker_rms_norm": (_P, _I, _I, _P, _I, c_float, _P),
    "stoker_add_rms_norm": (_P, _I, _P, _P, _I, c_float, _P),
    "stoker_silu_and_mul": (_P, _I, _I, _I, _P),
    "stoker_rotate_and_cache": (_P, _I, POINTER(AttentionShape), _P, _I, _P, _P),
    "stoker_attend": (_P, _I, POINTER(AttentionShape), POINTER(AttentionBatch), _P, _P),
    "stoker_delete_workspace": (_P,),
    "stoker_run_step": (POINTER(Model), POINTER(Step), _P),
    "stoker_find_largest": (_P, _I, _I, _I, _P),
    "stoker_sample": (_P, _I, _I, _I, _P, _P, _P, _P),
}


def available_instruction_sets() -> list[str]:
    """Those that this processor has and a library is there for, the fastest first."""
    flags = _processor_flags()
    return [name for name in instruction_sets() if _NEEDED_FLAGS[name] <= flags and library_path(name).exists()]


def find_instruction_set() -> str | None:
    """The fastest available one, or the forced one; None where it is not available. Raises InstructionSetError for a forced one that is unknown."""
    forced = os.environ.get(FORCED_INSTRUCTION_SET)
    if forced and forced not in instruction_sets():
        raise InstructionSetError(f"{FORCED_INSTRUCTION_SET}: {forced!r} is none of {', '.join(instruction_sets())}")
    available = available_instruction_sets()
    if forced:
        return forced if forced in available else None
    return available[0] if available else None


@cache
def load_library(instruction_set: str) -> ctypes.CDLL:
    """The library built for an instruction set, which the processor must have. Raises UnusableLibraryError."""
    path = library_path(instruction_set)
    try:
        library = ctypes.CDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
        library.stoker_instruction_set.restype = library.stoker_sources.restype = c_char_p
    except (OSError, AttributeError) as error:
        raise UnusableLibraryError(str(error)) from error
    built_for = library.stoker_instruction_set().decode()
    if built_for != instruction_set:
        raise UnusableLibraryError(f"{path} was built for {built_for}")
    if library.stoker_sources().decode() != sources_digest():
        raise UnusableLibraryError(f"{path} was built from other sources")
    library.stoker_new_workspace.restype = c_void_p
    library.stoker_sample.restype = c_int64
    return library


@cache
def _processor_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
