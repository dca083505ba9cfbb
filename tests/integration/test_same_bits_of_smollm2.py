"""The promise of bfloat16 on a CPU: what else the engine does changes no bit of a request's tokens and log probabilities."""

import random
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.llm import LLM
from stoker_engine.outputs import RequestOutput
from stoker_engine.sampling_params import SamplingParams

VOCAB_SIZE = 49152
MAX_PROMPT_TOKENS, MAX_TOKENS = 200, 24
SETTINGS: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": 256, "max_num_seqs": 64, "num_blocks_override": 1100}
Answer = tuple[Any, ...]


def random_params(rng: random.Random) -> SamplingParams:
    """Greedy or sampled from a seed, with or without each way of cutting, penalizing and reporting."""
    choices: list[tuple[float, dict[str, Any]]] = [
        (0.7, {"temperature": rng.uniform(0.2, 1.5)}),
        (0.3, {"top_k": rng.randint(1, 60)}),
        (0.3, {"top_p": rng.uniform(0.1, 1.0)}),
        (0.2, {"min_p": rng.uniform(0.0, 0.3)}),
        (0.2, {"repetition_penalty": rng.uniform(0.7, 1.5)}),
        (0.2, {"presence_penalty": rng.uniform(-1, 1), "frequency_penalty": rng.uniform(-1, 1)}),
        (0.1, {"logit_bias": {rng.randrange(VOCAB_SIZE): 3.0}}),
        (0.1, {"prompt_logprobs": rng.randint(0, 3)}),
    ]
    fields: dict[str, Any] = {"temperature": 0.0, "seed": rng.randrange(2**63), "logprobs": rng.randint(0, 5), "ignore_eos": True}
    for probability, some in choices:
        if rng.random() < probability:
            fields |= some
    return SamplingParams(max_tokens=rng.randint(4, MAX_TOKENS), **fields)


class Requests:
    def __init__(self, number: int) -> None:
        rng = random.Random(5)
        self.prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, rng.choice((30, MAX_PROMPT_TOKENS))))] for _ in range(number)]
        self.params = [random_params(rng) for _ in range(number)]

    def together(self, llm: LLM) -> list[Answer]:
        return list(map(answer_of, llm.generate(self.prompts, self.params, progress=False)))

    def alone(self, llm: LLM) -> list[Answer]:
        answers = []
        for prompt, params in zip(self.prompts, self.params, strict=True):
            assert llm.llm_engine.control.reset_prefix_cache()
            answers += map(answer_of, llm.generate([prompt], params, progress=False))
        return answers


def answer_of(output: RequestOutput) -> Answer:
    completion = output.outputs[0]
    assert output.failure_message is None and completion.logprobs is not None
    return completion.token_ids, completion.logprobs, completion.cumulative_logprob, list(output.prompt_logprobs or ())


def stats(llm: LLM) -> dict[str, Any]:
    found: dict[str, Any] = llm.llm_engine.call_utility("get_scheduler_stats")
    return found


@pytest.mark.property("P40")
@pytest.mark.parametrize("number", [8, pytest.param(64, marks=pytest.mark.stress)])
def test_random_requests_have_the_same_bits_alone_together_in_chunks_from_a_warm_cache_and_after_preemption(smollm2_path: Path, number: int) -> None:
    requests = Requests(number)
    with LLM(smollm2_path, multiprocess_mode=False, **SETTINGS) as llm:
        expected = requests.alone(llm)
        assert llm.llm_engine.control.reset_prefix_cache()
        assert requests.together(llm) == expected
        hits_before = stats(llm)["prefix_cache_hits"]
        assert requests.together(llm) == expected
        assert stats(llm)["prefix_cache_hits"] - hits_before > 20 * number
    with LLM(smollm2_path, multiprocess_mode=False, **(SETTINGS | {"max_num_batched_tokens": 16, "max_num_seqs": 16})) as llm:
        assert requests.together(llm) == expected
    # Blocks for hardly more than one of the longest requests.
    with LLM(smollm2_path, multiprocess_mode=False, **(SETTINGS | {"num_blocks_override": 20})) as llm:
        assert requests.together(llm) == expected
        assert stats(llm)["num_preemptions"] >= number // 8
