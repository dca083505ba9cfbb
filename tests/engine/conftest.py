"""Fixtures that the engine's tests share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from stoker_engine.frontend.clients.base import EngineCoreClient
from stoker_engine.inproc_core import EngineCoreInproc
from stoker_engine.llm_engine import LLMEngine, launch
from stoker_engine.stats import StatLogger
from stoker_engine.testing import Script, ScriptedExecutor, fake_engine_config
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

StartEngine = Callable[..., LLMEngine]


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


def scripted_program(script: Script) -> tuple[str, ...]:
    return "-m", "stoker_engine.testing", msgspec.json.encode(script).decode()


@pytest.fixture(scope="session")
def make_llm_engine(smollm2_tokenizer: Tokenizer) -> StartEngine:
    """`make_llm_engine(script, multiprocess_mode=True)`: an LLMEngine whose model is a script; to be shut down."""

    def make(script: Script, *stat_loggers: StatLogger, multiprocess_mode: bool) -> LLMEngine:
        config = fake_engine_config("/unused")
        if multiprocess_mode:
            process, client = launch(config, scripted_program(script))
            return LLMEngine(client, smollm2_tokenizer, stat_loggers, process)
        core = EngineCoreClient.make_client(lambda: EngineCoreInproc(config, ScriptedExecutor(script)), multiprocess_mode=False, asyncio_mode=False)
        return LLMEngine(core, smollm2_tokenizer, stat_loggers)

    return make


@pytest.fixture
def start_llm_engine(make_llm_engine: StartEngine) -> Iterator[StartEngine]:
    """The same, shut down at the end."""
    engines: list[LLMEngine] = []

    def start(script: Script, *stat_loggers: StatLogger, multiprocess_mode: bool) -> LLMEngine:
        engines.append(make_llm_engine(script, *stat_loggers, multiprocess_mode=multiprocess_mode))
        return engines[-1]

    yield start
    for engine in engines:
        engine.shutdown()
