from collections.abc import Callable
from typing import Any

import pytest

from stoker_gateway.openai.responses.protocol import ReasoningResponse, Response, TextConfigResponse, TextFormatResponse


@pytest.fixture
def make_response() -> Callable[[], Response]:
    """A response that has just begun."""
    names = ("instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier", "user")
    fields: dict[str, Any] = dict.fromkeys(names, None)
    fields |= dict.fromkeys(("created_at", "frequency_penalty", "presence_penalty", "temperature", "top_logprobs", "top_p"), 0)
    fields |= {"parallel_tool_calls": True, "reasoning": ReasoningResponse(), "tool_choice": "auto", "tools": [], "metadata": {}}
    text = TextConfigResponse(TextFormatResponse("text"))
    return lambda: Response(id="r", status="in_progress", background=False, model="m", store=True, text=text, **fields)
