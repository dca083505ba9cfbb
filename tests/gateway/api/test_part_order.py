"""An answer of text, a call and text, by each of the APIs, streamed with every cut and whole."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import Any

import msgspec
import pytest

from stoker_engine.finish_reason import FinishReason
from stoker_engine.outputs import CompletionOutput, Logprob, RequestOutput
from stoker_engine.sampling_params import SamplingParams
from stoker_gateway.api.chat_delta import chat_delta, whole_message
from stoker_gateway.api.chat_plan import ChatPlan
from stoker_gateway.api.choice_reader import ChoiceReader
from stoker_gateway.api.messages.answer import MessageAnswer
from stoker_gateway.api.responses.builder import ResponseBuilder
from stoker_gateway.openai.responses.protocol import Response
from stoker_gateway.reasoning.think import THINK, ThinkParser
from stoker_gateway.tools.formats import TOOL_FORMATS
from stoker_gateway.tools.trimmed import TrimmedParser

ARGUMENTS = '{"a":[1,"}é"],"b":5}'
TEXT = f'<think>Hm.</think>\n\nOne.<tool_call>{{"name":"f","arguments":{ARGUMENTS}}}</tool_call>Two.'
CUTS = [(TEXT[:cut], TEXT[cut:]) for cut in range(len(TEXT))] + [tuple(TEXT), (TEXT,)]


def plan() -> ChatPlan:
    ids = count()
    hermes = TOOL_FORMATS["hermes"]
    return ChatPlan(SamplingParams(), lambda: TrimmedParser(ThinkParser(THINK, hermes.parser(["f"]), is_open=False)), lambda: f"c{next(ids)}", True)


def outputs_of(pieces: Sequence[str], token_texts: Sequence[Sequence[str]] = ()) -> list[RequestOutput]:
    """With `token_texts` an output has their log probabilities: -1, -2 … over the whole answer."""
    outputs, numbers = [], count(1)
    for index, piece in enumerate(pieces):
        choice = CompletionOutput(0, piece, [], finish_reason=FinishReason.STOP if index == len(pieces) - 1 else None)
        if token_texts:
            choice.token_ids = [next(numbers) for _ in token_texts[index]]
            choice.logprobs = [{number: Logprob(-number, 1, text, text.encode())} for number, text in zip(choice.token_ids, token_texts[index], strict=True)]
        outputs.append(RequestOutput("r", None, [0], [choice], finished=choice.finish_reason is not None, num_output_tokens=index + 1))
    return outputs


def read(response: Response, outputs: Sequence[RequestOutput]) -> list[Any]:
    builder = ResponseBuilder(response, plan())
    return [msgspec.to_builtins(event) for event in [event for output in outputs for event in builder.add(output)]]


@pytest.mark.case("C004")
def test_a_chat_has_the_same_text_and_call_however_it_is_cut() -> None:
    for pieces in CUTS:
        reader, content, arguments, names = ChoiceReader(plan()), "", "", []
        for output in outputs_of(pieces):
            delta = msgspec.to_builtins(chat_delta(reader.parts(output.outputs[0])))
            content += delta.get("content", "")
            for call in delta.get("tool_calls", []):
                names += [(call["id"], call["function"]["name"])] if "id" in call else []
                arguments += call["function"]["arguments"]
        assert (content, arguments, names) == ("One.Two.", ARGUMENTS, [("c0", "f")])
        assert reader.finish_name(output.outputs[0]) == "tool_calls"
    message = whole_message(chat_delta(ChoiceReader(plan()).parts(outputs_of([TEXT])[0].outputs[0])))
    assert message.content == "One.Two." and isinstance(message.tool_calls, list) and message.tool_calls[0].function.arguments == ARGUMENTS


@pytest.mark.case("C004")
def test_a_response_has_text_call_and_text_in_order_however_it_is_cut(make_response: Callable[[], Response]) -> None:
    for pieces in CUTS:
        events = read(response := make_response(), outputs_of(pieces))
        items = msgspec.to_builtins(response.output)
        assert [item["type"] for item in items] == ["reasoning", "message", "function_call", "message"]
        assert [item["content"][0]["text"] for item in items if "content" in item] == ["Hm.", "One.", "Two."]
        assert items[2]["arguments"] == ARGUMENTS
        deltas = [""] * len(items)
        for event in events:
            deltas[event.get("output_index", 0)] += event.get("delta", "")
        assert deltas == ["Hm.", "One.", ARGUMENTS, "Two."]


async def _stream(outputs: Sequence[RequestOutput]) -> AsyncGenerator[RequestOutput]:
    for output in outputs:
        yield output


@pytest.mark.case("C004")
async def test_a_message_has_text_call_and_text_in_order_however_it_is_cut() -> None:
    for pieces in CUTS:
        blocks: list[list[str]] = []
        async for data in MessageAnswer("m", "m", plan()).stream(_stream(outputs_of(pieces))):
            for event in (json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: ")):
                if event["type"] == "content_block_start":
                    blocks.append([event["content_block"]["type"], "", ""])
                elif event["type"] == "content_block_delta":
                    kind, text = event["delta"].values()
                    blocks[event["index"]][1:] = [kind, blocks[event["index"]][2] + text]
        said = [["thinking", "thinking_delta", "Hm."], ["text", "text_delta", "One."]]
        assert blocks == [*said, ["tool_use", "input_json_delta", ARGUMENTS], ["text", "text_delta", "Two."]]
    whole = msgspec.to_builtins(MessageAnswer("m", "m", plan()).whole(outputs_of([TEXT])[0]).content)
    assert [block["type"] for block in whole] == ["thinking", "text", "tool_use", "text"]
    assert whole[2]["input"] == json.loads(ARGUMENTS) and [whole[1]["text"], whole[3]["text"]] == ["One.", "Two."]


def test_log_probabilities_are_those_of_the_messages_streamed_and_whole(make_response: Callable[[], Response]) -> None:
    tokens = ["<think>", "Hm", ".", "</think>", "\n\n", "One", ".", "<tool_call>", '{"name":"f","arguments":{}}', "</tool_call>", "\n", "Tw", "o.", ""]
    for sizes in ([1] * len(tokens), [len(tokens)], [5, 9], [6, 8], [9, 5]):
        groups = [tokens[sum(sizes[:index]) : sum(sizes[: index + 1])] for index in range(len(sizes))]
        events = read(response := make_response(), outputs_of(["".join(group) for group in groups], groups))
        messages = [item["content"][0] for item in msgspec.to_builtins(response.output) if item["type"] == "message"]
        assert [[entry["token"] for entry in part["logprobs"]] for part in messages] == [["One", "."], ["\n", "Tw", "o.", ""]]
        deltas = [(event["delta"], [entry["token"] for entry in event["logprobs"]]) for event in events if event["type"] == "response.output_text.delta"]
        assert deltas == [("One", ["One"]), (".", ["."]), ("\nTw", ["\n", "Tw"]), ("o.", ["o."]), ("", [""])]


def test_the_first_events_show_the_response_as_it_was_then(make_response: Callable[[], Response]) -> None:
    for pieces in ([TEXT], list(TEXT)):
        events = read(response := make_response(), outputs_of(pieces))
        for event in events[:2]:
            assert (event["response"]["status"], event["response"]["output"], event["response"]["usage"]) == ("in_progress", [], None)
        assert events[-1]["response"] == msgspec.to_builtins(response) and response.usage is not None
