import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import stoker_kernels.triton

# A dozen registers that don't fit, of float32 at head_dim 256; shared memory that a block has on every architecture from 8.0 on.
MAX_STACK_BYTES, MAX_SHARED_BYTES = 64, 99 << 10


def all_kernels() -> set[str]:
    modules = [importlib.import_module(f"stoker_kernels.triton.{module.name}") for module in pkgutil.iter_modules(stoker_kernels.triton.__path__)]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


def compile_kernels(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(folder)}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py")), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.stress
@pytest.mark.parametrize("architecture", ["80", "90"])
def test_every_kernel_compiles_with_few_spills_and_multiplies_16_bits_on_tensor_cores(architecture: str, tmp_path: Path) -> None:
    compiled = compile_kernels(tmp_path, architecture)
    assert {facts["kernel"] for facts in compiled} == all_kernels()
    assert [facts for facts in compiled if facts["stack_bytes"] > MAX_STACK_BYTES or facts["shared_bytes"] > MAX_SHARED_BYTES] == []
    with_tensor_cores = {facts["kernel"] for facts in compiled if facts["has_tensor_cores"]}
    assert with_tensor_cores == {"_decode_kernel", "_prefill_kernel", "_logits_kernel", "_int8_kernel", "_int4_kernel", "_grouped_matmul_kernel"}


@pytest.mark.stress
def test_no_kernel_is_compiled_again_for_another_number_of_requests_or_length(tmp_path: Path) -> None:
    compiled = compile_kernels(tmp_path, "90", "steps")
    variants = Counter(kernel for kernel, _ in {(facts["kernel"], facts["hash"]) for facts in compiled})
    assert variants == dict.fromkeys(("_decode_kernel", "_merge_kernel", "_prefill_kernel", "_int8_kernel", "_sample_kernel"), 1)
