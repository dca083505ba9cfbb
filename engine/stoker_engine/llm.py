"""LLM: a model in a few lines of Python, over a batch of prompts at a time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from stoker_engine.config import EngineConfig
from stoker_engine.frontend.renderer import Prompt
from stoker_engine.frontend.stat_loggers import LoggingStatLogger
from stoker_engine.llm_engine import LLMEngine
from stoker_engine.outputs import RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.settings import from_values

Messages = Sequence[Mapping[str, Any]]


class LLM:
    """A model and its engine. `model` is a URI (`package://…`, `file:///…`) or the path of a Hugging Face directory or GGUF file; `settings` are the engine's
    own, such as `max_model_len=4096`. With `log_stats` the log gets a line of figures at level INFO every ten seconds of work.

    The engine runs in a process of its own, or, with `multiprocess_mode=False`, in this one. `close()`, the end of a `with` block and the collection of
    the object end it and return its memory.

    Raises ConfigError for a setting or a model that is not there, ModelLoadError for a model that cannot be loaded, EngineDeadError where its process failed.
    """

    def __init__(self, model: str | Path, *, multiprocess_mode: bool = True, log_stats: bool = False, **settings: Any) -> None:
        config = from_values(EngineConfig, {"log_level": "warning", **settings, "model_uri": _uri(model)})
        self.llm_engine = LLMEngine.from_config(config, multiprocess_mode=multiprocess_mode, stat_loggers=[LoggingStatLogger()] if log_stats else [])

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """The finished output of each prompt, a text or token ids, in their order; `sampling_params` are for all or one for each.

        A request that fails alone has FinishReason.ERROR and a `failure_message`. Raises ParameterError, before anything is computed, for a prompt or
        parameter that the model does not allow, EngineDeadError where the engine fails.
        """
        rendered = self.llm_engine.renderer.render_cmpl(prompts)
        return self.llm_engine.generate(rendered, SamplingParams() if sampling_params is None else sampling_params, progress=progress)

    def chat(
        self,
        conversations: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
        **template: Any,
    ) -> list[RequestOutput]:
        """As `generate`, for one conversation or several, each a list of `{"role": …, "content": …}`. `template` goes to `Renderer.render_chat`."""
        renderer = self.llm_engine.renderer
        several: Sequence[Any] = [conversations] if conversations and isinstance(conversations[0], Mapping) else conversations
        return self.generate([renderer.render_chat(messages, **template) for messages in several], sampling_params, progress=progress)

    def close(self) -> None:
        """Ends the engine. Idempotent."""
        self.llm_engine.shutdown()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None) -> None:
        self.close()


def _uri(model: str | Path) -> str:
    if isinstance(model, str) and "://" in model:
        return model
    return f"file://{Path(model).resolve()}"
