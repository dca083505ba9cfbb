"""Every field that the official client knows is honored, refused by name or ignored: none is unknown."""

from typing import Any

import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam
from openai.types.responses import response_create_params as responses
from openai.types.responses.response_format_text_json_schema_config_param import ResponseFormatTextJSONSchemaConfigParam
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.responses.tool_choice_function_param import ToolChoiceFunctionParam
from openai.types.shared_params.reasoning import Reasoning

from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES, FieldRules
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest, StreamOptions
from stoker_gateway.openai.responses.request import (
    RESPONSES_RULES,
    ReasoningConfig,
    ResponsesRequest,
    ResponsesStreamOptions,
    ResponsesToolChoice,
    TextConfig,
    TextFormat,
)


def documented(module: Any, name: str) -> set[str]:
    kinds = (getattr(module, f"{name}CreateParams{suffix}") for suffix in ("Base", "NonStreaming", "Streaming"))
    return {field for kind in kinds for field in kind.__annotations__}


@pytest.mark.parametrize(
    ("fields", "request_type", "rules"),
    [
        (documented(chat, "Completion"), ChatCompletionRequest, CHAT_RULES),
        (documented(completions, "Completion"), CompletionRequest, COMPLETION_RULES),
        (documented(responses, "Response"), ResponsesRequest, RESPONSES_RULES),
    ],
    ids=["chat", "completions", "responses"],
)
def test_no_documented_field_is_unknown(fields: set[str], request_type: Any, rules: FieldRules) -> None:
    assert len(fields) > 15
    assert fields - {*request_type.__struct_fields__, *rules.ignored, *rules.refused} == set()


@pytest.mark.parametrize(
    ("documented_type", "struct"),
    [
        (ChatCompletionStreamOptionsParam, StreamOptions),
        (Reasoning, ReasoningConfig),
        (ResponseFormatTextJSONSchemaConfigParam, TextFormat),
        (ResponseTextConfigParam, TextConfig),
        (ToolChoiceFunctionParam, ResponsesToolChoice),
        (responses.StreamOptions, ResponsesStreamOptions),
    ],
)
def test_no_documented_field_within_a_field_is_unknown(documented_type: Any, struct: Any) -> None:
    assert set(documented_type.__annotations__) - set(struct.__struct_fields__) == set()
