"""lm-eval's `local-completions`: choices by loglikelihood (echo and logprobs) and generation; as token ids and as texts, one by one and in batches."""

import os
import sys
from pathlib import Path
from typing import Any

import lm_eval
import requests
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

SMOLLM2_URL, _, TOKENIZER = sys.argv[1:4]
URL = f"{SMOLLM2_URL}/v1/completions"
SETTINGS: dict[str, Any] = {"model": "smollm2", "base_url": URL, "tokenizer": TOKENIZER, "tokenizer_backend": "huggingface", "max_length": 1024}


def evaluate(**settings: Any) -> dict[str, Any]:
    tasks = TaskManager(include_path=".", include_defaults=False)
    results = lm_eval.simple_evaluate("local-completions", {**SETTINGS, **settings}, tasks=["capitals", "continued"], task_manager=tasks, bootstrap_iters=0)
    assert results["results"]["capitals"]["acc,none"] == 1.0, results["results"]
    answers = {name: [sample["resps"] for sample in results["samples"][name]] for name in ("capitals", "continued")}
    assert all(response[0][0] for response in answers["continued"])
    return answers


def every_way_to_ask_gets_the_same_answers() -> None:
    alone = evaluate()
    for settings in ({"tokenized_requests": False}, {"batch_size": 4}, {"num_concurrent": 4}):
        others = evaluate(**settings)
        assert others["continued"] == alone["continued"], settings
        for ours, theirs in zip(alone["capitals"], others["capitals"], strict=True):
            for (logprob, is_greedy), (other, other_is_greedy) in zip((one[0] for one in ours), (one[0] for one in theirs), strict=True):
                assert abs(float(logprob) - float(other)) < 0.05 and is_greedy == other_is_greedy, (settings, ours, theirs)


def what_the_model_would_say_is_greedy_and_as_likely_as_it_said() -> None:
    request = {"model": "smollm2", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 8, "logprobs": 1}
    said = requests.post(URL, json=request, timeout=60).json()["choices"][0]
    instance = Instance("loglikelihood", {}, (request["prompt"], said["text"]), 0)
    ((logprob, is_greedy),) = get_model("local-completions")(**SETTINGS).loglikelihood([instance])
    assert is_greedy and abs(logprob - sum(said["logprobs"]["token_logprobs"])) < 0.05, (logprob, said)


os.chdir(Path(__file__).parent)
every_way_to_ask_gets_the_same_answers()
what_the_model_would_say_is_greedy_and_as_likely_as_it_said()
