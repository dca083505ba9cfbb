"""A request's log probabilities, bit for bit, whatever else happens in the engine."""

import random

import pytest
import torch

from stoker_engine.config import EngineConfig, ModelConfig
from stoker_engine.models.loader import load_model
from stoker_engine.sampling_params import SamplingParams

BLOCK_SIZE = 8
PROMPT = random.Random(1).choices(range(320), k=185)
NEIGHBOR = random.Random(2).choices(range(320), k=300)
PARAMS = SamplingParams(temperature=0.9, seed=3, logprobs=5)
NUM_TOKENS = 12  # past position 192, from which on attention sums in other parts


def alone(driver):
    return [driver.prefill("a"), *driver.decode(NUM_TOKENS - 1, ["a"])]


def in_a_batch(driver):
    for name, length in (("b", 7), ("c", 210), ("d", 300)):
        driver.add(name, NEIGHBOR[:length], SamplingParams(temperature=0.0))
        driver.prefill(name)
    outputs = [driver.step({"b": 1, "a": 185, "c": 1})]
    return outputs + [driver.step({"d": 1, "a": 1} | ({"b": 1} if index % 3 else {})) for index in range(NUM_TOKENS - 1)]


def in_chunks(driver):
    outputs = [driver.step({"a": size}) for size in (1, 2, 61, 3, 100, 18)]
    return outputs + driver.decode(NUM_TOKENS - 1)


def after_preemption(driver):
    outputs = [driver.prefill("a"), *driver.decode(5)]
    driver.preempt("a")
    outputs += [driver.step({"a": 70}), driver.prefill("a")]
    return outputs + driver.decode(NUM_TOKENS - 7)


@pytest.mark.property("P40")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_request_has_the_same_bits_alone_in_a_batch_in_chunks_cached_and_preempted(make_model_directory, driver_type, dtype: str) -> None:
    config = EngineConfig(model=ModelConfig(uri=f"file://{make_model_directory(320, 320)}"), block_size=BLOCK_SIZE, dtype=dtype)
    loaded = load_model(make_model_directory(320, 320), config, torch.device("cpu"), lambda share: None)

    def logprobs(way, driver, **options):
        driver.add("a", PROMPT, PARAMS, **options)
        return [output.logprobs["a"] for output in way(driver) if "a" in output.logprobs]

    expected = logprobs(alone, driver_type(loaded))
    assert len(expected) == NUM_TOKENS
    for way in (in_a_batch, in_chunks, after_preemption):
        assert logprobs(way, driver_type(loaded)) == expected, way.__name__
    driver = driver_type(loaded)
    first = driver.add("first", [*PROMPT[:96], 5], PARAMS)
    driver.prefill("first")
    assert logprobs(alone, driver, cached_blocks=first.block_ids[:12]) == expected
