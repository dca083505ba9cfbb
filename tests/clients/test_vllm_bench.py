"""`vllm bench serve` of a vLLM that is there already: `make stress PEERS=dir`."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress

VLLM = Path(os.environ.get("PEERS", "/nonexistent"), "vllm", "bin", "vllm")
NUM_PROMPTS = 16
INPUT_LEN, OUTPUT_LEN = 32, 8
LOAD = f"--dataset-name=random --random-input-len={INPUT_LEN} --random-output-len={OUTPUT_LEN} --num-prompts={NUM_PROMPTS} --max-concurrency=4 --ignore-eos"
RESULT = "--save-result --save-detailed --result-filename=result.json --disable-tqdm"


@pytest.mark.skipif(not VLLM.exists(), reason="no vLLM under PEERS")
@pytest.mark.parametrize(("backend", "endpoint"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_it_counts_every_token(
    backend: str, endpoint: str, smollm2_url: str, tokenizer_directory: Path, run_program: Callable[..., None], tmp_path: Path
) -> None:
    server = [f"--base-url={smollm2_url}", f"--endpoint={endpoint}", f"--backend={backend}", "--model=smollm2", f"--tokenizer={tokenizer_directory}"]
    run_program([VLLM, "bench", "serve", *server, *LOAD.split(), *RESULT.split(), f"--result-dir={tmp_path}"], VLLM_NO_USAGE_STATS="1")
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (result["completed"], result["failed"]) == (NUM_PROMPTS, 0), result["errors"]
    assert result["output_lens"] == [OUTPUT_LEN] * NUM_PROMPTS and all(ttft > 0 for ttft in result["ttfts"])
