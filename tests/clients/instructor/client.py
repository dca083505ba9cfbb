"""instructor: its modes of structured output, whole and in parts."""

import sys
from collections.abc import Iterable
from typing import Any, Literal

import instructor
import openai
import pydantic
from instructor.core import IncompleteOutputException

SMOLLM2_URL, TOOLS_URL = sys.argv[1:3]


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    legs: int
    kind: Literal["bird", "mammal", "fish"]


class get_weather(pydantic.BaseModel):
    """The weather."""

    city: str
    days: int


def smollm2(mode: instructor.Mode) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=f"{SMOLLM2_URL}/v1", api_key="none"), mode=mode)


def scripted(mode: instructor.Mode) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=f"{TOOLS_URL}/v1", api_key="none"), mode=mode)


DESCRIBE: dict[str, Any] = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "Describe a cat."}],
    "max_retries": 0,
    "temperature": 0,
    "max_tokens": 200,
}


def a_schema_is_followed() -> None:
    animal = smollm2(instructor.Mode.JSON_SCHEMA).create(response_model=Animal, **DESCRIBE)
    assert isinstance(animal, Animal), animal


def an_answer_that_is_cut_is_known_as_such() -> None:
    try:
        smollm2(instructor.Mode.JSON).create(response_model=Animal, **{**DESCRIBE, "max_tokens": 5})
    except IncompleteOutputException:
        return
    raise AssertionError("five tokens were taken for a whole answer")


def partial_objects_stream() -> None:
    whole = smollm2(instructor.Mode.JSON_SCHEMA).create(response_model=Animal, **DESCRIBE)
    parts = list(smollm2(instructor.Mode.JSON_SCHEMA).create_partial(response_model=Animal, **DESCRIBE))
    assert len(parts) > 2 and parts[-1].model_dump() == whole.model_dump()


def a_tool_is_a_model() -> None:
    request: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Weather in Paris?"}], "max_retries": 0}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
        assert scripted(mode).create(response_model=get_weather, **request).model_dump() == {"city": "Paris", "days": 2}
    *_, last = scripted(instructor.Mode.TOOLS).create_partial(response_model=get_weather, **request)
    assert (last.city, last.days) == ("Paris", 2)


def parallel_tools_are_several_models() -> None:
    request: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Weather in Paris and Oslo?"}], "max_retries": 0}
    weathers = list(scripted(instructor.Mode.PARALLEL_TOOLS).create(response_model=Iterable[get_weather], tool_choice="auto", **request))
    assert [(weather.city, weather.days) for weather in weathers] == [("Paris", 2), ('Oslo "N"', 1)]


a_schema_is_followed()
an_answer_that_is_cut_is_known_as_such()
partial_objects_stream()
a_tool_is_a_model()
parallel_tools_are_several_models()
