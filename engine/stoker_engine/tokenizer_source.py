"""What a model's files say about its tokenizer, whatever their format."""

from dataclasses import dataclass, field

import msgspec
from tokenizers import Tokenizer as Backend


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling parameters that the model's authors recommend; None where they say nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenizerSource:
    """The parts of a tokenizer. `adds_bos` None: as the backend's post-processor does. `eos_token_ids` are all ids that end an answer.
    `tool_template` is the chat template for requests with tools, None where there is one template for all."""

    backend: Backend
    bos_token: str | None = None
    eos_token: str | None = None
    adds_bos: bool | None = None
    eos_token_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    tool_template: str | None = None
    generation_defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
