"""llama-index's OpenAILike: chats, streams, completions, tools and structured output."""

import asyncio
import sys
from typing import Any

import pydantic
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

SMOLLM2_URL, TOOLS_URL = sys.argv[1:3]
QUESTION = [ChatMessage(role="user", content="What is the capital of France?")]


class Animal(pydantic.BaseModel):
    """An animal."""

    name: str = pydantic.Field(max_length=20)
    legs: int


def get_weather(city: str, days: int) -> str:
    """The weather."""
    return "sunny, 21 degrees" if (city, days) == ("Paris", 2) else "unknown"


def smollm2(**fields: Any) -> OpenAILike:
    settings: dict[str, Any] = {"api_base": f"{SMOLLM2_URL}/v1", "api_key": "none", "is_chat_model": True, "max_retries": 0}
    return OpenAILike(model="smollm2", context_window=2048, temperature=0, **{"max_tokens": 200, **settings, **fields})


def scripted() -> OpenAILike:
    settings: dict[str, Any] = {"api_base": f"{TOOLS_URL}/v1", "api_key": "none", "max_retries": 0, "context_window": 2048}
    return OpenAILike(model="scripted", is_chat_model=True, is_function_calling_model=True, **settings)


def a_stream_says_what_the_whole_answer_says() -> None:
    answer = smollm2().chat(QUESTION)
    assert "Paris" in answer.message.content
    *_, last = smollm2().stream_chat(QUESTION)
    assert last.message.content == answer.message.content


async def asynchronous_chats_are_the_same() -> None:
    answer = await smollm2().achat(QUESTION)
    stream = await smollm2().astream_chat(QUESTION)
    assert "".join([chunk.delta async for chunk in stream]) == answer.message.content


def texts_are_completed() -> None:
    llm = smollm2(is_chat_model=False, max_tokens=16)
    *_, last = llm.stream_complete("Once upon a time")
    assert last.text == llm.complete("Once upon a time").text != ""


def a_schema_is_followed() -> None:
    llm = smollm2(should_use_structured_outputs=True).as_structured_llm(Animal)
    assert isinstance(llm.complete("Describe a cat.").raw, Animal)


def tools_are_called_and_answered() -> None:
    tool = FunctionTool.from_defaults(get_weather)
    llm = scripted()
    *_, streamed = llm.stream_chat_with_tools([tool], user_msg="Weather in Paris?")
    for answer in (llm.chat_with_tools([tool], user_msg="Weather in Paris?"), streamed):
        (call,) = llm.get_tool_calls_from_response(answer)
        assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris", "days": 2})
    result = ChatMessage(role="tool", content=get_weather(**call.tool_kwargs), additional_kwargs={"tool_call_id": call.tool_id})
    history = [ChatMessage(role="user", content="Weather in Paris?"), answer.message, result]
    assert llm.chat_with_tools([tool], chat_history=history).message.content == "It is sunny in Paris, at 21 degrees."
    both = llm.chat_with_tools([tool], user_msg="Weather in Paris and Oslo?", allow_parallel_tool_calls=True)
    assert [call.tool_kwargs["city"] for call in llm.get_tool_calls_from_response(both)] == ["Paris", 'Oslo "N"']


def a_called_tool_is_run() -> None:
    answer = scripted().predict_and_call([FunctionTool.from_defaults(get_weather)], user_msg="Weather in Paris?")
    assert answer.response == "sunny, 21 degrees"


a_stream_says_what_the_whole_answer_says()
asyncio.run(asynchronous_chats_are_the_same())
texts_are_completed()
a_schema_is_followed()
tools_are_called_and_answered()
a_called_tool_is_run()
