import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import stoker_kernels.triton

# A dozen registers that don't fit, of float32 at head_dim 256; shared memory that a block has on every architecture from 8.0 on.
MAX_STACK_BYTES, MAX_SHARED_BYTES = 64, 99 << 10


def all_kernels() -> set[str]:
    modules = [importlib.import_module(f"stoker_kernels.triton.{module.name}") for module in pkgutil.iter_modules(stoker_kernels.triton.__path__)]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


@pytest.mark.stress
@pytest.mark.parametrize("architecture", ["80", "90"])
def test_every_kernel_compiles_with_few_spills_and_multiplies_16_bits_on_tensor_cores(architecture: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, str(script), architecture], env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {facts["kernel"] for facts in compiled} == all_kernels()
    assert [facts for facts in compiled if facts["stack_bytes"] > MAX_STACK_BYTES or facts["shared_bytes"] > MAX_SHARED_BYTES] == []
    with_tensor_cores = {facts["kernel"] for facts in compiled if facts["has_tensor_cores"]}
    assert with_tensor_cores == {"_decode_kernel", "_prefill_kernel", "_logits_kernel", "_int8_kernel", "_int4_kernel", "_grouped_matmul_kernel"}
