"""Every field that the official client knows is honored, refused by name or ignored: none is unknown."""

from typing import Any

import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES, FieldRules
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest
from stoker_gateway.openai.responses.request import RESPONSES_RULES, ResponsesRequest


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
