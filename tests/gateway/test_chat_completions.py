from typing import Any

import httpx
import pytest


@pytest.mark.property("P63", "P64")
@pytest.mark.case("C001")
def test_usage_comes_in_the_last_chunk_of_a_stream_that_asked_for_it(api: Any) -> None:
    fields = {"temperature": 0, "max_tokens": 5}
    api.chat("Name three rivers", **fields)  # the prefix cache is warm for both calls that are compared
    whole = api.chat("Name three rivers", **fields)
    events = api.stream_chat("Name three rivers", stream_options={"include_usage": True}, **fields)
    *others, last = events.chunks
    assert events.response.headers["content-type"].startswith("text/event-stream")
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)
    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
    assert others[-1]["choices"][0]["finish_reason"] == "length"


def test_a_stream_that_asked_for_no_usage_has_none(api: Any) -> None:
    assert all("usage" not in chunk for chunk in api.stream_chat(max_tokens=3).chunks)


@pytest.mark.property("P64")
def test_continuous_usage_counts_up_to_the_total(api: Any) -> None:
    events = api.stream_chat(max_tokens=4, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in events.chunks]
    assert counts == sorted(counts) and counts[-1] == 4


@pytest.mark.property("P63", "P65")
@pytest.mark.case("C003")
def test_a_stream_has_one_role_chunk_and_one_empty_last_delta(api: Any) -> None:
    fields = {"temperature": 0, "max_tokens": 10}
    events = api.stream_chat("count", **fields)
    whole = api.chat("count", **fields)
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in events.chunks}) == 1
    assert isinstance(events.chunks[0]["created"], int)
    choices = events.choices()
    assert [index for index, choice in enumerate(choices) if "role" in choice["delta"]] == [0]
    assert choices[0]["delta"]["role"] == "assistant"
    assert events.finish_reasons() == ["length"] and choices[-1]["delta"] == {}
    assert events.text() == whole["choices"][0]["message"]["content"]
    assert whole["usage"]["completion_tokens"] == 10
    assert events.num_done == 1


@pytest.mark.case("C099")
def test_a_stream_has_the_headers_that_keep_proxies_from_buffering(api: Any) -> None:
    headers = api.stream_chat(max_tokens=2).response.headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers and "content-encoding" not in headers


@pytest.mark.property("P65")
@pytest.mark.case("C012")
@pytest.mark.parametrize("limits", [{"max_completion_tokens": 7}, {"max_tokens": 20, "max_completion_tokens": 7}])
def test_max_completion_tokens_bounds_the_answer(api: Any, limits: dict[str, int]) -> None:
    answer = api.chat("go on", ignore_eos=True, **limits)
    assert answer["usage"]["completion_tokens"] == 7 and answer["choices"][0]["finish_reason"] == "length"
    events = api.stream_chat("go on", ignore_eos=True, stream_options={"include_usage": True}, **limits)
    assert events.chunks[-1]["usage"]["completion_tokens"] == 7 and events.finish_reasons() == ["length"]


@pytest.mark.case("C012")
@pytest.mark.parametrize("value", [0, -1])
def test_a_max_completion_tokens_below_one_is_refused(api: Any, value: int) -> None:
    response = api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": value})
    assert response.status_code == 400 and response.json()["error"]["param"] == "max_completion_tokens"


@pytest.mark.case("C014")
def test_a_null_behaves_as_an_absent_field(api: Any) -> None:
    nulls = dict.fromkeys(["max_tokens", "temperature", "top_p", "stop", "n", "seed", "logprobs", "stream"])
    answer = api.complete("x", ignore_eos=True, **nulls)
    assert answer["usage"]["completion_tokens"] == 16
    assert [choice["logprobs"] for choice in answer["choices"]] == [None]
    chat = api.chat("greeting", tools=None, response_format=None, **nulls)
    assert chat["choices"] == api.chat("greeting")["choices"] and chat["choices"][0]["finish_reason"] == "stop"


@pytest.mark.case("C008")
@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_an_assistant_turn_without_content_is_an_empty_one(api: Any, content: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", **content}, {"role": "user", "content": "b"}]
    empty = [messages[0], {"role": "assistant", "content": ""}, messages[2]]
    answers = [api.post("/v1/chat/completions", {"messages": one, "max_tokens": 3, "temperature": 0}).json() for one in (messages, empty)]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]
    assert answers[0]["choices"] == answers[1]["choices"]


@pytest.mark.case("C009")
def test_an_empty_list_of_tool_calls_is_none(api: Any) -> None:
    def ask(**fields: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Blue heron", **fields}, {"role": "user", "content": "repeat"}]
        response: httpx.Response = api.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0, "return_token_ids": True})
        return response

    with_list, without = ask(tool_calls=[]).json(), ask().json()
    assert with_list["prompt_token_ids"] == without["prompt_token_ids"]
    assert with_list["choices"] == without["choices"]
    assert "Blue heron" in api.post("/detokenize", {"tokens": with_list["prompt_token_ids"]}).json()["prompt"]


@pytest.mark.case("C020")
def test_characters_of_several_tokens_arrive_whole(api: Any) -> None:
    events = api.stream_chat("emoji")
    pieces = [choice["delta"].get("content", "") for choice in events.choices()]
    assert events.text() == "hi😀é漢!" == api.chat("emoji")["choices"][0]["message"]["content"]
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces.index("hi") < next(index for index, piece in enumerate(pieces) if "😀" in piece)


@pytest.mark.property("P65")
@pytest.mark.case("C020")
def test_an_answer_cut_inside_a_character_is_the_same_streamed_and_whole(api: Any) -> None:
    events = api.stream_chat("emoji", max_tokens=3)
    assert events.text() == api.chat("emoji", max_tokens=3)["choices"][0]["message"]["content"]
    assert events.text() in ("hi", "hi\ufffd") and events.finish_reasons() == ["length"]


STOPS = [
    ("stops", ["DEFG"], "abc", "DEFG"),
    ("stops", ["DEFX"], "abcDEFGh", None),
    ("stops", ["cD", "DE"], "ab", "cD"),
    ("stops", ["h"], "abcDEFG", "h"),
    ("lines", ["\nUser:"], "xy", "\nUser:"),
]


@pytest.mark.case("C021")
@pytest.mark.parametrize(("prompt", "stop", "text", "reason"), STOPS)
def test_a_stop_string_over_several_tokens_ends_the_text_before_it(api: Any, prompt: str, stop: list[str], text: str, reason: str | None) -> None:
    choice = api.chat(prompt, stop=stop)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], choice["stop_reason"]) == (text, "stop", reason)
    events = api.stream_chat(prompt, stop=stop)
    assert (events.text(), events.finish_reasons()) == (text, ["stop"])
    completion = api.complete(prompt, stop=stop)["choices"][0]
    assert (completion["text"], completion["finish_reason"]) == (text, "stop")
    assert api.stream_completion(prompt, stop=stop).text() == text


@pytest.mark.fault("G17")
def test_no_chunk_but_the_role_is_empty_while_text_is_held_back(api: Any) -> None:
    contents = [choice["delta"]["content"] for choice in api.stream_chat("stops", stop=["abcDEFGhi"]).choices() if "content" in choice["delta"]]
    assert contents == ["", "abcDEFGh"]


@pytest.mark.case("C022")
@pytest.mark.parametrize("stop", ["", [""], ["END", ""]])
def test_an_empty_stop_string_is_refused(api: Any, stop: object) -> None:
    response = api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stop": stop})
    assert response.status_code == 400 and response.json()["error"]["param"] == "stop"


@pytest.mark.case("C022")
@pytest.mark.parametrize("stop", [[], None])
def test_an_empty_list_of_stop_strings_stops_nothing(api: Any, stop: object) -> None:
    assert api.chat("greeting", stop=stop)["choices"] == api.chat("greeting")["choices"]


def test_chat_logprobs_are_of_the_token_ids_that_were_asked_for(api: Any) -> None:
    choice = api.chat(temperature=0, max_tokens=3, logprob_token_ids=[5, 9])["choices"][0]
    assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == [2, 2, 2]


@pytest.mark.case("C023")
@pytest.mark.parametrize(("top_logprobs", "num_top"), [(None, 0), (0, 0), (3, 3), (20, 20)])
def test_chat_logprobs_have_one_entry_per_token(api: Any, top_logprobs: int | None, num_top: int) -> None:
    fields = {"temperature": 0, "max_tokens": 6, "logprobs": True, "top_logprobs": top_logprobs}
    choice = api.chat("emoji", **fields)["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 6 and choice["finish_reason"] == "length"
    for entry in entries:
        logprobs = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(logprobs) == num_top and logprobs == sorted(logprobs, reverse=True)
        assert not num_top or entry["top_logprobs"][0]["token"] == entry["token"]
    spelled = bytes(byte for entry in entries for byte in entry["bytes"])
    assert spelled.decode(errors="ignore") == choice["message"]["content"].rstrip("\ufffd")
    streamed = [entry for part in api.stream_chat("emoji", **fields).choices() if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert streamed == entries


@pytest.mark.case("C023")
@pytest.mark.parametrize("top_logprobs", [None, 2])
def test_chat_logprobs_may_be_those_of_chosen_tokens(api: Any, top_logprobs: int | None) -> None:
    answer = api.chat("chosen", max_tokens=3, logprobs=True, top_logprobs=top_logprobs, logprob_token_ids=[5, 6])
    assert [len(entry["top_logprobs"]) for entry in answer["choices"][0]["logprobs"]["content"]] == [2, 2, 2]


@pytest.mark.case("C023")
@pytest.mark.parametrize("fields", [{"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 2}, {"logprobs": False, "top_logprobs": 2}])
def test_top_logprobs_out_of_range_or_alone_is_refused(api: Any, fields: dict[str, Any]) -> None:
    response = api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], **fields})
    assert response.status_code == 400 and response.json()["error"]["param"] == "top_logprobs"


def test_n_choices_of_a_chat_are_numbered_and_streamed_apart(api: Any) -> None:
    answer = api.chat("several", n=3, max_tokens=5, seed=7)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 15
    events = api.stream_chat("several", n=3, max_tokens=5, seed=7)
    for choice in answer["choices"]:
        assert events.text(choice["index"]) == choice["message"]["content"]
        assert events.finish_reasons(choice["index"]) == ["length"]
        assert [part for part in events.choices(choice["index"]) if "role" in part["delta"]] == events.choices(choice["index"])[:1]


def test_token_ids_are_returned_on_request(api: Any) -> None:
    answer = api.chat("greeting", return_token_ids=True)
    events = api.stream_chat("greeting", return_token_ids=True)
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    assert len(answer["choices"][0]["token_ids"]) == answer["usage"]["completion_tokens"]
    assert [token_id for choice in events.choices() for token_id in choice.get("token_ids", [])] == answer["choices"][0]["token_ids"]
    assert events.chunks[0]["prompt_token_ids"] == answer["prompt_token_ids"]


@pytest.mark.property("P44")
def test_prompt_logprobs_have_an_entry_per_prompt_token(api: Any) -> None:
    answer = api.chat("logprobs of the prompt", prompt_logprobs=1, max_tokens=1)
    assert answer["prompt_logprobs"][0] is None
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert {"logprob", "rank", "decoded_token"} == next(iter(answer["prompt_logprobs"][1].values())).keys()


def test_a_final_message_can_be_continued(api: Any) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "To be or"}]
    body = {"messages": messages, "continue_final_message": True, "max_tokens": 1, "return_token_ids": True}
    continued = api.post("/v1/chat/completions", body).json()["prompt_token_ids"]
    text = api.complete("To be or", max_tokens=1, return_token_ids=True)["choices"][0]["prompt_token_ids"]
    assert continued[-len(text) :] == text


def test_a_request_id_is_taken_and_given_back(api: Any) -> None:
    response = api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, headers={"X-Request-Id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1" and response.json()["id"] == "chatcmpl-abc-1"


@pytest.mark.parametrize("given", ["x" * 129, "a b", ""])
def test_an_unusable_request_id_is_replaced(api: Any, given: str) -> None:
    response = api.client.get("/livez", headers={"X-Request-Id": given})
    assert len(response.headers["x-request-id"]) == 32


def test_an_alias_names_the_model_too(api: Any) -> None:
    answer = api.post("/v1/chat/completions", {"model": "m-alias", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).json()
    assert answer["model"] == "m-alias"
