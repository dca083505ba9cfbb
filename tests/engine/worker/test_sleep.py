import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.errors import ModelLoadError
from stoker_engine.models.loader import load_model
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.worker.sleep import OffloadedWeights, find_tensors
from stoker_engine.worker.worker import Worker

PROMPT = list(range(5, 20))
NO_TOKENS = SchedulerOutput([], CachedRequestData(), {}, 0, ["r"], [])


@pytest.fixture
def model_directory(make_model_directory: Callable[[int, int], Path], tmp_path: Path) -> Path:
    """A model with stretched rope and tied embeddings, in files that a test may change."""
    directory = tmp_path / "model"
    shutil.copytree(make_model_directory(320, 320), directory)
    config = json.loads((directory / "config.json").read_text())
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    (directory / "config.json").write_text(json.dumps(config | {"rope_scaling": rope, "tie_word_embeddings": True}))
    return directory


@pytest.fixture
def config(model_directory: Path) -> EngineConfig:
    return EngineConfig(model=ModelConfig(uri=f"file://{model_directory}"), block_size=8, device="cpu", dtype="float32")


@pytest.fixture
def worker(config: EngineConfig) -> Worker:
    worker = Worker(config)
    worker.load_model(lambda share: None)
    worker.initialize_kv_cache(64)
    return worker


def logits_token(worker: Worker) -> list[int]:
    """The first token after the prompt, and its log probability's neighbors."""
    params = SamplingParams(temperature=0, logprobs=5)
    request = NewRequestData("r", list(PROMPT), len(PROMPT), params, [], [], [1, 2], 0)
    assert worker.execute_model(SchedulerOutput([request], CachedRequestData(), {"r": len(PROMPT)}, len(PROMPT), [], [])) is None
    output = worker.sample_tokens(None)
    worker.execute_model(NO_TOKENS)
    return [*output.sampled_token_ids["r"], *output.logprobs["r"].token_ids[0]]


def tensors_of(worker: Worker) -> list[torch.Tensor]:
    loaded = worker._loaded
    return [] if loaded is None else [tensor.to_dense() if tensor.is_mkldnn else tensor.clone() for tensor in find_tensors(loaded.model)]


@pytest.mark.case("C064")
def test_weights_loaded_again_and_what_is_computed_from_the_config_are_equal_to_the_bit(worker: Worker) -> None:
    before, answer = tensors_of(worker), logits_token(worker)
    worker.sleep(2)
    assert tensors_of(worker) == []
    worker.wake_up(["weights", "kv_cache"])
    after = tensors_of(worker)
    assert len(after) == len(before) == 16  # two layers of six, embedding, head, final norm, rope
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert logits_token(worker) == answer


@pytest.mark.fault("D10")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("tags", [["weights"], ["kv_cache"]])
def test_there_is_no_forward_before_everything_is_back(worker: Worker, level: int, tags: list[str]) -> None:
    answer = logits_token(worker)
    worker.sleep(level)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="while the worker sleeps"):
            logits_token(worker)
        worker.wake_up(tags)
    worker.wake_up(sorted({"weights", "kv_cache"} - set(tags)))
    assert logits_token(worker) == answer


def test_a_step_that_only_ends_requests_needs_no_memory(worker: Worker) -> None:
    worker.sleep(2)
    assert worker.execute_model(NO_TOKENS) == ModelRunnerOutput()


@pytest.mark.case("C064")
def test_a_model_that_is_gone_or_another_one_does_not_wake(worker: Worker, model_directory: Path) -> None:
    answer = logits_token(worker)
    worker.sleep(2)
    weights, hidden = model_directory / "model.safetensors", model_directory / "model.hidden"
    weights.rename(hidden)
    with pytest.raises(ModelLoadError, match="has neither"):
        worker.wake_up(["weights"])
    hidden.rename(weights)
    config = (model_directory / "config.json").read_text()
    (model_directory / "config.json").write_text(config.replace("10000.0", "20000.0"))
    with pytest.raises(ModelLoadError, match="another one than before the sleep"):
        worker.wake_up(["weights"])
    (model_directory / "config.json").write_text(config)
    worker.wake_up(["weights", "kv_cache"])
    assert logits_token(worker) == answer


def test_offloaded_weights_are_freed_and_come_back_in_the_same_tensors(config: EngineConfig, model_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker_kernels.linear._can_pack", lambda weight: False)  # as on a device
    model = load_model(model_directory, config, torch.device("cpu"), lambda share: None).model
    tensors = find_tensors(model)
    before = [tensor.clone() for tensor in tensors]
    assert sum(tensor.nbytes for tensor in tensors) > 80_000
    offloaded = OffloadedWeights(model)
    assert [tensor.untyped_storage().nbytes() for tensor in tensors] == [0] * len(tensors)
    offloaded.restore()
    assert all(torch.equal(one, other) for one, other in zip(before, tensors, strict=True))
