"""An hf:// model from a stand-in of a hub, served by real processes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.llm import LLM
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import to_args
from stoker_gateway.api.config import ApiConfig

PROMPT = [1, 2, 3, 4, 5]


async def test_a_downloaded_model_answers_as_the_directory_does(
    hub: Any, start_replica: Callable[..., Any], make_model_directory: Callable[[int, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_model_directory(320, 320)
    commit = hub.add_model("org/tiny", {path.name: path.read_bytes() for path in directory.iterdir()})
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    async with start_replica(model_uri="hf://org/tiny") as replica, httpx.AsyncClient(base_url=replica.url) as http:
        request = {"model": "smollm2", "prompt": PROMPT, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
        answer = (await http.post("/v1/completions", json=request)).json()["choices"][0]["text"]
        report = (await http.get("/startupz")).json()
    assert report["revision"] == commit and report["bytes"] == report["sizeBytes"] == sum(path.stat().st_size for path in directory.iterdir())
    assert hub.count("GET /stored/*") == 2, "the tokenizer and the weights are large files, each wanted once"
    assert answer and {answer} == {answer_of(model, tmp_path) for model in (directory, "hf://org/tiny")}
    assert hub.count("GET /stored/*") == 2


def answer_of(model: Path | str, cache_dir: Path) -> str:
    with LLM(model, multiprocess_mode=False, model_cache_dir=str(cache_dir), dtype="float32", max_model_len=1024) as llm:
        return llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True), progress=False)[0].outputs[0].text


async def test_an_api_that_downloads_stops_at_once(
    hub: Any, make_model_directory: Callable[[int, int], Path], socket_dir: str, free_port: Callable[[], int], wait_until: Any
) -> None:
    hub.add_model("org/tiny", {path.name: path.read_bytes() for path in make_model_directory(320, 320).iterdir()})
    hub.gate.clear()
    words = Path(socket_dir, "termination.json")
    config = ApiConfig(
        model=ModelConfig(uri="hf://org/tiny"),
        model_cache_dir=f"{socket_dir}/cache",
        socket_dir=socket_dir,
        host="127.0.0.1",
        port=free_port(),
        termination_message_path=str(words),
    )
    process = subprocess.Popen([sys.executable, "-m", "stoker_gateway.api", *to_args(config)])
    try:
        await wait_until(lambda: hub.count("GET /stored/*") == 1)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0
    finally:
        process.kill()
        process.wait()
    assert json.loads(words.read_text()) == {"reason": "Aborted", "phase": "downloading"}
