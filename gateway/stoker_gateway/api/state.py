"""ApiState: what every endpoint needs, made once per process."""

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker_engine.config import ModelConfig
from stoker_engine.errors import EngineNotReadyError
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.renderer import Renderer
from stoker_engine.protocol import EngineCoreReadyResponse
from stoker_engine.tokenizer import GenerationDefaults, Tokenizer
from stoker_gateway.api.chat_format import ChatFormat, make_chat_format
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.responses.store import ResponseStore
from stoker_gateway.http.drain import Drain
from stoker_gateway.openai.errors import model_not_found


@dataclass(slots=True)
class ApiState:
    """`model_names` begins with the served name; the others are aliases. `sampling_defaults` are the model's own recommendations."""

    config: ApiConfig
    engine: AsyncLLM
    tokenizer: Tokenizer
    metrics: Metrics
    drain: Drain
    model_names: tuple[str, ...]
    renderer: Renderer
    sampling_defaults: dict[str, Any]
    chat_format: ChatFormat
    responses: ResponseStore = field(default_factory=ResponseStore)
    created: int = field(default_factory=lambda: int(time.time()))

    def check_model(self, model: str) -> None:
        """Raises ApiError (404) for a model that is not served here."""
        if model not in self.model_names:
            raise model_not_found(model)

    def check_ready(self) -> EngineCoreReadyResponse:
        """The engine's capacity. Raises EngineNotReadyError while it does not serve."""
        ready = self.engine.status.ready
        if not self.engine.is_ready or ready is None:
            raise EngineNotReadyError(f"The model is not ready: {self.engine.status.explanation}.")
        return ready


def make_state(config: ApiConfig, engine: AsyncLLM, tokenizer: Tokenizer, metrics: Metrics, drain: Drain) -> ApiState:
    return ApiState(
        config=config,
        engine=engine,
        tokenizer=tokenizer,
        metrics=metrics,
        drain=drain,
        model_names=served_names(config.model),
        renderer=engine.renderer,
        sampling_defaults=_given(tokenizer.generation_defaults),
        chat_format=make_chat_format(config, tokenizer),
    )


def served_names(model: ModelConfig) -> tuple[str, ...]:
    """The served name, by default the last part of the model's URI, then the aliases."""
    return model.served_name or model.uri.rstrip("/").rpartition("/")[2].removesuffix(".gguf"), *model.aliases


def _given(defaults: GenerationDefaults) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None}
