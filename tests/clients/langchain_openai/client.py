"""langchain-openai: chats, streams with token usage, structured output by every method, and an agent's tools."""

import asyncio
import sys
from typing import Any

import langchain_core.messages as messages
import pydantic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

SMOLLM2_URL, TOOLS_URL = sys.argv[1:3]
QUESTION = "What is the capital of France?"


class Animal(pydantic.BaseModel):
    """An animal."""

    name: str = pydantic.Field(max_length=20)
    legs: int


@tool
def get_weather(city: str, days: int) -> str:
    """The weather."""
    return "sunny, 21 degrees" if (city, days) == ("Paris", 2) else "unknown"


def smollm2(**fields: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": "smollm2", "base_url": f"{SMOLLM2_URL}/v1", "temperature": 0, "max_tokens": 200, "max_retries": 0, **fields})


def scripted() -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{TOOLS_URL}/v1", max_retries=0)


def joined(chunks: list[Any]) -> Any:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


def a_stream_says_what_the_whole_answer_says() -> None:
    answer = smollm2().invoke(QUESTION)
    assert "Paris" in answer.text and answer.usage_metadata["output_tokens"] > 0
    chunks = list(smollm2(stream_usage=True).stream(QUESTION))
    assert len(chunks) > 3 and joined(chunks).text == answer.text
    usage = joined(chunks).usage_metadata
    assert [usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")] == [
        answer.usage_metadata[name] for name in ("input_tokens", "output_tokens", "total_tokens")
    ]
    assert answer.response_metadata["finish_reason"] == joined(chunks).response_metadata["finish_reason"] == "stop"


async def batches_are_the_same_as_single_questions() -> None:
    answers = await smollm2().abatch([QUESTION, QUESTION])
    assert answers[0].text == answers[1].text == "".join([chunk.text async for chunk in smollm2().astream(QUESTION)])


def logprobs_come_with_each_token() -> None:
    answer = smollm2(logprobs=True, top_logprobs=2, max_tokens=8).invoke(QUESTION)
    assert len(answer.response_metadata["logprobs"]["content"]) == answer.usage_metadata["output_tokens"]


def texts_are_completed() -> None:
    llm = OpenAI(model="smollm2", base_url=f"{SMOLLM2_URL}/v1", temperature=0, max_tokens=16, max_retries=0)
    assert llm.invoke("Once upon a time") == "".join(llm.stream("Once upon a time"))
    assert len(llm.batch(["One, two,", "Once upon a time"])) == 2


def a_schema_is_followed() -> None:
    for strict in (True, None):
        structured = smollm2().with_structured_output(Animal, method="json_schema", strict=strict)
        assert isinstance(structured.invoke("Describe a cat."), Animal)
    assert isinstance(list(structured.stream("Describe a cat."))[-1], Animal)
    raw = smollm2().with_structured_output(Animal, method="json_schema", include_raw=True).invoke("Describe a cat.")
    assert raw["parsing_error"] is None and raw["raw"].usage_metadata["output_tokens"] > 0


def a_schema_is_a_tool() -> None:
    class Weather(pydantic.BaseModel):
        """The weather."""

        model_config = pydantic.ConfigDict(title="get_weather")
        city: str
        days: int

    structured = scripted().with_structured_output(Weather, method="function_calling")
    assert structured.invoke("Weather in Paris?") == Weather(city="Paris", days=2)


def tools_are_called_and_answered() -> None:
    bound = scripted().bind_tools([get_weather])
    paris = {"city": "Paris", "days": 2}
    asked = [messages.HumanMessage("Weather in Paris?")]
    for answer in (bound.invoke(asked), joined(list(bound.stream(asked)))):
        (call,) = answer.tool_calls
        assert call["name"] == "get_weather" and call["args"] == paris
        assert bound.invoke([*asked, answer, get_weather.invoke(call)]).text == "It is sunny in Paris, at 21 degrees."
    both = bound.invoke("Weather in Paris and Oslo?")
    assert both.text.strip() == "I will look." and [call["args"]["city"] for call in both.tool_calls] == ["Paris", 'Oslo "N"']
    for choice in ("any", "get_weather"):
        assert scripted().bind_tools([get_weather], tool_choice=choice).invoke(asked).tool_calls[0]["args"] == paris
    assert bound.invoke("Hello?").text == "Hello! How can I help?"


def responses_call_tools_too() -> None:
    bound = ChatOpenAI(model="scripted", base_url=f"{TOOLS_URL}/v1", max_retries=0, use_responses_api=True).bind_tools([get_weather])
    asked = [messages.HumanMessage("Weather in Paris?")]
    for answer in (bound.invoke(asked), joined(list(bound.stream(asked)))):
        (call,) = answer.tool_calls
        assert call["args"] == {"city": "Paris", "days": 2}
        assert bound.invoke([*asked, answer, get_weather.invoke(call)]).text == "It is sunny in Paris, at 21 degrees."


def responses_are_messages_too() -> None:
    answer = smollm2(use_responses_api=True).invoke(QUESTION)
    assert "Paris" in answer.text
    assert joined(list(smollm2(use_responses_api=True).stream(QUESTION))).text == answer.text


a_stream_says_what_the_whole_answer_says()
asyncio.run(batches_are_the_same_as_single_questions())
logprobs_come_with_each_token()
texts_are_completed()
a_schema_is_followed()
a_schema_is_a_tool()
tools_are_called_and_answered()
responses_are_messages_too()
responses_call_tools_too()
