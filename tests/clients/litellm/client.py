"""litellm: chats, streams, completions, tools, structured output, errors and costs, as an OpenAI-compatible provider and by `hosted_vllm`."""

import asyncio
import json
import sys
from typing import Any

import litellm
import pydantic

SMOLLM2_URL, TOOLS_URL = sys.argv[1:3]
GREEDY: dict[str, Any] = {"api_base": f"{SMOLLM2_URL}/v1", "api_key": "none", "temperature": 0, "max_tokens": 24, "num_retries": 0}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    legs: int


def a_stream_says_what_the_whole_answer_says(provider: str) -> None:
    model = f"{provider}/smollm2"
    answer = litellm.completion(model=model, messages=QUESTION, **GREEDY)
    assert "Paris" in answer.choices[0].message.content and answer.choices[0].finish_reason in ("stop", "length")
    chunks = list(litellm.completion(model=model, messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == answer.choices[0].message.content
    built = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    assert built.usage.completion_tokens == answer.usage.completion_tokens and built.usage.prompt_tokens == answer.usage.prompt_tokens


async def asynchronous_chats_are_the_same() -> None:
    answers = await asyncio.gather(*(litellm.acompletion(model="openai/smollm2", messages=QUESTION, **GREEDY) for _ in range(3)))
    assert len({answer.choices[0].message.content for answer in answers}) == 1
    stream = await litellm.acompletion(model="openai/smollm2", messages=QUESTION, stream=True, **GREEDY)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == answers[0].choices[0].message.content


def texts_are_completed() -> None:
    answer = litellm.text_completion(model="text-completion-openai/smollm2", prompt="One, two,", logprobs=1, **GREEDY)
    assert answer.choices[0].text and len(answer.choices[0].logprobs.tokens) == answer.usage.completion_tokens


def a_schema_is_followed() -> None:
    request = {**GREEDY, "max_tokens": 200, "messages": [{"role": "user", "content": "Describe a cat."}]}
    Animal.model_validate_json(litellm.completion(model="hosted_vllm/smollm2", response_format=Animal, **request).choices[0].message.content)
    Animal.model_validate_json(litellm.completion(model="openai/smollm2", response_format=Animal, **request).choices[0].message.content)


def tools_are_called_and_answered() -> None:
    request: dict[str, Any] = {"model": "hosted_vllm/scripted", "api_base": f"{TOOLS_URL}/v1", "api_key": "none", "tools": [TOOL]}
    messages: list[Any] = [{"role": "user", "content": "Weather in Paris?"}]
    streamed = litellm.stream_chunk_builder(list(litellm.completion(messages=messages, stream=True, **request)))
    for answer in (litellm.completion(messages=messages, **request), streamed):
        (call,) = answer.choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Paris", "days": 2} and answer.choices[0].finish_reason == "tool_calls"
    history = [*messages, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    assert litellm.completion(messages=history, **request).choices[0].message.content == "It is sunny in Paris, at 21 degrees."


def responses_are_created() -> None:
    request: dict[str, Any] = {"api_base": f"{SMOLLM2_URL}/v1", "api_key": "none", "temperature": 0, "max_output_tokens": 24}
    answer = litellm.responses(model="openai/smollm2", input="What is the capital of France?", **request)
    assert "Paris" in answer.output[0].content[0].text
    *_, last = litellm.responses(model="openai/smollm2", input="What is the capital of France?", stream=True, **request)
    assert last.type == "response.completed"


def errors_have_their_class() -> None:
    too_long = [{"role": "user", "content": "word " * 4000}]
    for fields, error in (({"messages": too_long}, litellm.ContextWindowExceededError), ({"top_p": 3}, litellm.BadRequestError)):
        try:
            litellm.completion(**{"model": "openai/smollm2", "messages": QUESTION, **GREEDY, **fields})
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


a_stream_says_what_the_whole_answer_says("openai")
a_stream_says_what_the_whole_answer_says("hosted_vllm")
asyncio.run(asynchronous_chats_are_the_same())
texts_are_completed()
a_schema_is_followed()
tools_are_called_and_answered()
responses_are_created()
errors_have_their_class()
