import logging

import pytest
import torch

from stoker_engine.core.kv_cache_config import MAX_CPU_KV_CACHE_BYTES
from stoker_engine.core.model_runner_output import ModelRunnerOutput
from stoker_engine.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from stoker_engine.errors import ConfigError, ModelLoadError
from stoker_engine.executor.uniproc import UniprocExecutor
from stoker_engine.sampling_params import SamplingParams


def _start(config, num_blocks: int = 50) -> UniprocExecutor:
    executor = UniprocExecutor(config)
    executor.load_model(lambda share: None)
    executor.initialize_kv_cache(num_blocks)
    return executor


def _step(params: SamplingParams, request_id: str = "a") -> SchedulerOutput:
    request = NewRequestData(request_id, [1, 2, 3], 3, params, [], [], [1], 0)
    return SchedulerOutput([request], CachedRequestData(), {request_id: 3}, 3, [], [])


def _run(executor: UniprocExecutor, step: SchedulerOutput) -> ModelRunnerOutput:
    assert executor.execute_model(step).result() is None
    return executor.sample_tokens(None).result()


def test_a_model_is_loaded_profiled_and_run(make_config) -> None:
    shares: list[float] = []
    executor = UniprocExecutor(make_config(max_model_len=128))
    description = executor.load_model(shares.append)
    assert (description.max_model_len, description.vocab_size, description.dtype) == (4096, 320, "float32")
    assert description.kv_block_bytes == 2 * 2 * 8 * 2 * 8 * 4  # keys and values, layers, tokens, heads, dimensions, bytes
    assert shares[-1] == 1.0
    assert 0 < executor.profile() <= MAX_CPU_KV_CACHE_BYTES
    executor.initialize_kv_cache(50)
    assert list(_run(executor, _step(SamplingParams(temperature=0.0))).sampled_token_ids) == ["a"]
    executor.shutdown()
    executor.shutdown()


def test_a_step_before_there_is_a_kv_cache_raises(make_config) -> None:
    with pytest.raises(RuntimeError, match="execute_model before initialize_kv_cache"):
        UniprocExecutor(make_config()).execute_model(_step(SamplingParams()))


def test_a_model_that_is_not_there_is_a_configuration_error(make_config, tmp_path) -> None:
    config = make_config()
    (tmp_path / "config.json").write_text("{}")
    for uri, error in ((f"file://{tmp_path}/absent", ConfigError), (f"file://{tmp_path}", ModelLoadError)):
        model = type(config.model)(uri=uri)
        with pytest.raises(error, match=str(tmp_path)):
            UniprocExecutor(make_config(model=model)).load_model(lambda share: None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_a_configuration_error(make_config) -> None:
    with pytest.raises(ConfigError, match="--device"):
        UniprocExecutor(make_config(device="cuda")).load_model(lambda share: None)


@pytest.mark.case("C060")
def test_no_id_beyond_the_tokenizers_is_ever_sampled(make_config) -> None:
    config = make_config(vocab_size=320, num_token_ids=300)
    executor = UniprocExecutor(config)
    assert executor.load_model(lambda share: None).vocab_size == 300
    executor.initialize_kv_cache(50)
    bias = dict.fromkeys(range(300, 320), 100.0)
    sampled = set()
    for index in range(200):
        output = _run(executor, _step(SamplingParams(temperature=2.0, logit_bias=bias), f"r{index}"))
        sampled.update(output.sampled_token_ids[f"r{index}"])
    assert max(sampled) < 300
    assert len(sampled) > 5


@pytest.mark.case("C060")
def test_ids_of_a_tokenizer_that_the_model_has_no_rows_for_are_not_in_the_vocabulary(make_config, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        description = UniprocExecutor(make_config(vocab_size=320, num_token_ids=330)).load_model(lambda share: None)
    assert description.vocab_size == 320
    assert "330 ids" in caplog.text


def test_unseeded_requests_follow_the_engines_seed(make_config) -> None:
    params = SamplingParams(temperature=2.0)
    tokens = [
        [_run(executor, _step(params, f"r{i}")).sampled_token_ids[f"r{i}"][0] for i in range(8)]
        for executor in (_start(make_config(seed=seed)) for seed in (0, 0, 1))
    ]
    assert tokens[0] == tokens[1]
    assert tokens[0] != tokens[2]
