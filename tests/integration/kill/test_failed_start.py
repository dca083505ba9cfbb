import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.config import LifecycleConfig, ModelConfig
from stoker_engine.exit_codes import ExitCode

FAULT_IN_A_MODEL_FILE = """
from stoker_engine.models.fused_llama import FusedLlama
from stoker_engine.models.llama import LlamaModel
from stoker_engine.__main__ import main

def forward(self, *args, **kwargs):
    return 1 / 0

LlamaModel.forward = FusedLlama.forward = forward
main()
"""


@pytest.fixture
async def instance(make_instance: Any) -> AsyncIterator[Any]:
    async with make_instance(LifecycleConfig()) as instance:
        instance.start_api()
        await instance.wait_until(instance.readyz)
        yield instance


async def told_by_the_api(instance: Any, words: str) -> dict[str, Any]:
    """The start-up report, once it has the words."""

    async def has_words() -> bool:
        return words in (await instance.http.get("/startupz")).json()["message"]

    await instance.wait_until(has_words)
    report: dict[str, Any] = (await instance.http.get("/startupz")).json()
    return report


async def assert_told(instance: Any, words: str) -> None:
    """Of an engine that has ended: its own last words stand at every place where somebody looks."""
    report = await told_by_the_api(instance, words)
    message = instance.termination("engine")["lastError"]
    assert report["phase"] == "failed" and report["message"] == message
    ready = await instance.http.get("/readyz")
    assert ready.status_code == 503 and message in ready.json()["reason"]
    refused = await instance.post()
    assert refused.status_code == 503 and words in refused.json()["error"]["message"]
    assert instance.api.poll() is None


@pytest.mark.fault("A2", "A5")
@pytest.mark.property("P56")
async def test_a_start_that_fails_is_told_by_the_api_in_the_engines_own_words(instance: Any, tmp_path: Path, results: Any, limit: Any) -> None:
    weightless = tmp_path / "weightless"
    weightless.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    config |= {"intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 128, "rms_norm_eps": 1e-5}
    (weightless / "config.json").write_text(json.dumps(config))
    started = time.monotonic()
    instance.start_engine(model=ModelConfig(uri=f"file://{weightless}"))
    assert await instance.exit_code(instance.engine) == ExitCode.MODEL_LOAD_FAILED
    await assert_told(instance, str(weightless))
    missing_weights = time.monotonic() - started

    started = time.monotonic()
    instance.start_engine(num_blocks_override=100_000_000)
    assert await instance.exit_code(instance.engine) == ExitCode.BAD_CONFIG
    await assert_told(instance, "a KV cache of 100000000 blocks needs")
    out_of_memory = time.monotonic() - started

    started = time.monotonic()
    instance.start_engine(["-c", FAULT_IN_A_MODEL_FILE])
    assert await instance.exit_code(instance.engine) == ExitCode.MODEL_LOAD_FAILED
    await assert_told(instance, "phase warming_up failed: ZeroDivisionError: division by zero")
    fault = time.monotonic() - started
    results.add("a failed start is told by the api", [missing_weights, out_of_memory, fault], limit(10, 10))


@pytest.mark.fault("C3")
@pytest.mark.case("C052")
async def test_a_pool_smaller_than_one_request_is_refused_with_both_numbers(instance: Any) -> None:
    instance.start_engine(num_blocks_override=20, kv_cache_memory_bytes=None)
    assert await instance.exit_code(instance.engine) == ExitCode.BAD_CONFIG
    report = await told_by_the_api(instance, "one request of 1024 tokens needs")
    assert "enough for 304 tokens" in report["message"]
