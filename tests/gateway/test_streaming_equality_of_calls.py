"""A stream with reasoning and calls says what the whole answer says, by chats, responses and messages, in every format, for random requests of fixed seeds."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.testing import Script
from stoker_engine.tokenizer import load_tokenizer
from stoker_gateway.tools.formats import TOOL_FORMATS

TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}<|im_end|>{{ messages[-1].content }}<|im_end|>
{%- if enable_thinking is defined and enable_thinking %}<think>{% endif %}"""
"""The scripted model says what stands between the marks: what a test sends is what it gets."""

Calls = list[tuple[str, dict[str, Any]]]
NAMES = ("log_reading", "open_valve", "get_time")
WORDS = ("Well", " so", "\n", "😀", "Åse", "漢字", "é", " <b>", "END", "{", "}", "<", "[", "  ", ".", "<tool", "to=", " ", "[T")
VALUES: tuple[Any, ...] = (4, -3.5, True, None, 'Åse "B"', "a\nb\\", '</tool_call>; [TOOL_CALLS] } ] <|end|"', {"n": [1, {}]}, [], "😀", "", {"<think>": "漢"})


def hermes(calls: Calls) -> str:
    return "\n".join(f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(values)}}}\n</tool_call>' for name, values in calls)


def llama3_json(calls: Calls) -> str:
    return "<|python_tag|>" + "; ".join(f'{{"name": "{name}", "parameters": {json.dumps(values, ensure_ascii=False)}}}' for name, values in calls)


def pythonic(calls: Calls) -> str:
    return "[" + ", ".join(f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})" for name, values in calls) + "]"


def mistral(calls: Calls) -> str:
    return "[TOOL_CALLS]" + json.dumps([{"name": name, "arguments": values} for name, values in calls], ensure_ascii=False)


def mistral_v11(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(values, ensure_ascii=False)}" for name, values in calls)


def deepseek_v3(calls: Calls) -> str:
    parts = [f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json.dumps(values)}\n```<｜tool▁call▁end｜>" for name, values in calls]
    return "<｜tool▁calls▁begin｜>" + "\n".join(parts) + "<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Calls) -> str:
    parts = [f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(values, ensure_ascii=False)}<｜tool▁call▁end｜>" for name, values in calls]
    return "<｜tool▁calls▁begin｜>" + "".join(parts) + "<｜tool▁calls▁end｜>"


def harmony(calls: Calls) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(values)}<|end|>" for name, values in calls
    )


WRITERS: dict[str, Callable[[Calls], str]] = {
    writer.__name__: writer for writer in (hermes, llama3_json, pythonic, mistral, mistral_v11, deepseek_v3, deepseek_v31, harmony)
}
REASONING = {"mistral": "[THINK]{}[/THINK]", "mistral_v11": "[THINK]{}[/THINK]", "harmony": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"}
TEXT = {"harmony": "<|channel|>final<|message|>{}<|end|><|start|>assistant"}


def random_answer(draw: random.Random, name: str) -> str:
    """Perhaps reasoning, then texts and calls in any order; one in six is cut and goes on with other words."""

    def words() -> str:
        return "".join(draw.choices(WORDS, k=draw.randint(1, 6)))

    def calls() -> str:
        return WRITERS[name](
            [(draw.choice(NAMES), {draw.choice("abc"): draw.choice(VALUES) for _ in range(draw.randint(0, 2))}) for _ in range(draw.randint(1, 3))]
        )

    pieces = [REASONING.get(name, "<think>\n{}</think>\n\n").format(words())] if draw.random() < 0.4 else []
    pieces += [TEXT.get(name, "{}").format(words()) if draw.random() < 0.4 else calls() for _ in range(draw.randint(1, 3))]
    answer = "".join(pieces)
    return answer[: draw.randint(1, len(answer))] + words() if draw.random() < 0.16 else answer


def random_request(draw: random.Random, name: str) -> dict[str, Any]:
    """A chat, without what is about its stream."""
    answer = random_answer(draw, name)
    request: dict[str, Any] = {"messages": [{"role": "user", "content": answer}], "max_tokens": draw.choice([1000, 1000, draw.randint(1, 1 + len(answer))])}
    if draw.random() < 0.85:
        request["tools"] = [{"type": "function", "function": {"name": tool}} for tool in NAMES[: draw.choice([2, 3, 3])]]
        request["parallel_tool_calls"] = draw.random() < 0.8
    if draw.random() < 0.3:
        start = draw.randrange(len(answer))
        request["stop"] = [answer[start : start + draw.randint(1, 5)], "漢字é"]
        request["include_stop_str_in_output"] = draw.random() < 0.3
    if draw.random() < 0.3:
        request |= {"logprobs": True, "top_logprobs": draw.choice([0, 2])}
    if draw.random() < 0.2:
        request |= {"n": draw.randint(2, 3), "temperature": 1}
    if name not in ("harmony", "mistral", "mistral_v11"):
        request["chat_template_kwargs"] = {"enable_thinking": draw.random() < 0.2}
    return request | {"return_token_ids": draw.random() < 0.3, "skip_special_tokens": draw.random() < 0.8}


def merged_chat(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has when the stream is over."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for given in chunk["choices"]:
            is_new = given["index"] not in choices
            empty: dict[str, Any] = {"content": "", "reasoning": "", "tool_calls": [], "logprobs": [], "token_ids": [], "finish_reason": None}
            choice = choices.setdefault(given["index"], empty)
            assert choice["finish_reason"] is None and ("role" in given["delta"]) == is_new
            add_delta(choice, given["delta"])
            choice["logprobs"] += (given.get("logprobs") or {"content": []})["content"]
            choice["token_ids"] += given.get("token_ids", [])
            if given["finish_reason"] is not None:
                assert given["delta"] == {}
                choice |= {"finish_reason": given["finish_reason"], "stop_reason": given["stop_reason"]}
    assert not chunks[-1]["choices"] and all(chunk["choices"] and chunk["usage"] is None for chunk in chunks[:-1])
    return {"choices": [choices[index] for index in sorted(choices)], "usage": chunks[-1]["usage"]}


def add_delta(choice: dict[str, Any], delta: dict[str, Any]) -> None:
    assert delta.get("reasoning") == delta.get("reasoning_content")
    choice["content"] += delta.get("content", "")
    choice["reasoning"] += delta.get("reasoning", "")
    for call in delta.get("tool_calls", []):
        if "id" in call:
            assert call["index"] == len(choice["tool_calls"]) and call["type"] == "function" and call["id"]
            choice["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
        choice["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]


def whole_chat(answer: dict[str, Any]) -> dict[str, Any]:
    """In the same shape."""
    choices = []
    for given in answer["choices"]:
        message = given["message"]
        assert message["content"] is not None or message["tool_calls"]
        choice = {name: given[name] for name in ("finish_reason", "stop_reason")} | {"token_ids": given.get("token_ids", [])}
        choice |= {
            "content": message["content"] or "",
            "reasoning": message.get("reasoning", ""),
            "logprobs": (given["logprobs"] or {"content": []})["content"],
        }
        choices.append(choice | {"tool_calls": [call["function"] for call in message.get("tool_calls", [])]})
    return {"choices": choices, "usage": answer["usage"]}


def check_chat(api: Any, request: dict[str, Any]) -> None:
    whole = api.post("/v1/chat/completions", request)
    assert whole.status_code == 200, whole.text
    events = api.stream("/v1/chat/completions", {**request, "stream_options": {"include_usage": True}})
    assert merged_chat(events.chunks) == whole_chat(whole.json())


def data_of(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n") if line.startswith("data: ")]


def merged_items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of a response by its events, each event of an end agreeing with the pieces before it."""
    items: list[dict[str, Any]] = []
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(items)
                items.append(copy.deepcopy(event["item"]))
            case "content_part.added":
                items[event["output_index"]]["content"].append(copy.deepcopy(event["part"]))
            case "output_text.delta" | "reasoning_text.delta" as kind:
                part = items[-1]["content"][event["content_index"]]
                part["text"] += event["delta"]
                if kind == "output_text.delta":
                    part["logprobs"] += event["logprobs"]
            case "function_call_arguments.delta":
                items[-1]["arguments"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == items[-1]["content"][-1]["text"]
            case "function_call_arguments.done":
                assert event["arguments"] == items[-1]["arguments"]
            case "output_item.done":
                items[-1]["status"] = event["item"]["status"]
                assert items[-1] == event["item"]
    return items


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


def check_response(api: Any, request: dict[str, Any]) -> None:
    body: dict[str, Any] = {"input": request["messages"][0]["content"], "store": False, "max_output_tokens": request["max_tokens"]}
    body |= {name: request[name] for name in ("stop", "parallel_tool_calls", "skip_special_tokens", "chat_template_kwargs") if name in request}
    if "tools" in request:
        body["tools"] = [{"type": "function", "name": tool["function"]["name"], "parameters": None, "strict": None} for tool in request["tools"]]
    if "logprobs" in request:
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": request["top_logprobs"]}
    whole = api.post("/v1/responses", body).json()
    events = data_of(api.post("/v1/responses", {**body, "stream": True}))
    last = events[-1]["response"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert merged_items(events) == last["output"]
    assert without_ids(last["output"]) == without_ids(whole["output"])
    own = ("id", "created_at", "completed_at", "output")
    assert {name: value for name, value in last.items() if name not in own} == {name: value for name, value in whole.items() if name not in own}


def merged_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """As Anthropic's clients do it."""
    message: dict[str, Any] = copy.deepcopy(events[0]["message"])
    arguments = ""
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(copy.deepcopy(event["content_block"]))
                arguments = ""
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                if delta["type"] == "input_json_delta":
                    arguments += delta["partial_json"]
                else:
                    name = delta["type"].removesuffix("_delta")
                    block[name] += delta[name]
            case "content_block_stop" if message["content"][event["index"]]["type"] == "tool_use":
                message["content"][event["index"]]["input"] = arguments_of(arguments)
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return message


def arguments_of(text: str) -> Any:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": text}


def check_message(api: Any, request: dict[str, Any]) -> None:
    body: dict[str, Any] = {"messages": request["messages"], "max_tokens": request["max_tokens"], "stop_sequences": request.get("stop")}
    if "tools" in request:
        body["tools"] = [{"name": tool["function"]["name"], "input_schema": {"type": "object"}} for tool in request["tools"]]
        body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": not request["parallel_tool_calls"]}
    whole = api.post("/v1/messages", body).json()
    merged = merged_message(data_of(api.post("/v1/messages", {**body, "stream": True})))
    for message in (whole, merged):
        message["content"] = without_ids(message["content"])
        del message["id"]
    assert merged == whole


@pytest.fixture(scope="module")
def api_of(marked_model: Path, smollm2_path: Path, make_api: Callable[..., AbstractContextManager[Any]]) -> Iterator[Callable[[str, str], Any]]:
    """`api_of(format, tokens)`: the marks of calls are tokens of their own where those are `marks`, and spelled by a real model's where `words`."""
    template = marked_model / "quoting.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    with ExitStack() as stack:

        @cache
        def start(name: str, tokens: str) -> Any:
            model = marked_model if tokens == "marks" else smollm2_path
            tokenizer = load_tokenizer(model)
            script = Script(quoting_token_id=tokenizer.eos_token_ids[0], vocab_size=tokenizer.vocab_size)
            fields: dict[str, Any] = {"reasoning_parser": "mistral" if "mistral" in name else "think", "tool_call_parser": name}
            uri = f"file://{model}"
            return stack.enter_context(
                make_api(script, engine={"enable_prefix_caching": False}, model=ModelConfig(uri=uri, served_name="m"), chat_template=str(template), **fields)
            )

        yield start


@pytest.mark.property("P65")
@pytest.mark.parametrize(
    ("name", "tokens", "seeds"),
    [
        ("hermes", "marks", range(3)),
        *(pytest.param(name, tokens, range(3, 35), marks=pytest.mark.stress) for name in TOOL_FORMATS for tokens in ("marks", "words")),
    ],
)
def test_an_answer_with_calls_is_the_same_streamed_and_whole(api_of: Callable[[str, str], Any], name: str, tokens: str, seeds: range) -> None:
    api = api_of(name, tokens)

    def check(seed: int) -> None:
        request = random_request(random.Random(f"{name} {seed}"), name)
        check_chat(api, request)
        check_response(api, request)
        check_message(api, request)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check, seeds))
