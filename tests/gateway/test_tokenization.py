from typing import Any

import pytest

from stoker_engine.tokenizer import Tokenizer
from stoker_engine.version import __version__


def test_a_prompt_is_tokenized_as_the_model_reads_it(api: Any, tokenizer: Tokenizer) -> None:
    answer = api.post("/tokenize", {"prompt": "hello world<|im_end|>"}).json()
    assert answer == {"count": 3, "max_model_len": 1024, "tokens": tokenizer.encode("hello world<|im_end|>"), "token_strs": None}


def test_a_chat_is_tokenized_as_its_completion_counts_it(api: Any) -> None:
    messages = [{"role": "user", "content": "greeting"}]
    answer = api.post("/tokenize", {"messages": messages}).json()
    assert answer["count"] == len(answer["tokens"]) == api.chat("greeting", max_tokens=1)["usage"]["prompt_tokens"]
    assert answer["count"] > api.post("/tokenize", {"messages": messages, "add_generation_prompt": False}).json()["count"]


def test_token_strings_are_the_vocabularys_spellings(api: Any) -> None:
    answer = api.client.post("/tokenize", json={"prompt": "hello world", "return_token_strs": True}).json()
    assert answer["token_strs"] == ["hello", "Ġworld"]


@pytest.mark.parametrize("text", ["", "hello world", "hi😀é漢!", "<|im_start|>user\n"])
def test_detokenizing_undoes_tokenizing(api: Any, text: str) -> None:
    tokens = api.post("/tokenize", {"prompt": text}).json()["tokens"]
    assert api.post("/detokenize", {"tokens": tokens}).json() == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "messages"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a" * 2_000_000}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"prompt": "a", "return_tokens": True}, "return_tokens"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [49152]}, "tokens"),
    ],
)
def test_what_is_wrong_is_named(api: Any, path: str, body: dict[str, Any], param: str) -> None:
    response = api.client.post(path, json=body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert len(response.content) < 1000


def test_another_model_is_not_found(api: Any) -> None:
    assert api.post("/tokenize", {"model": "other", "prompt": "a"}).status_code == 404
    assert api.post("/detokenize", {"model": "other", "tokens": [1]}).status_code == 404


def test_the_version_is_that_of_the_package(api: Any) -> None:
    assert api.client.get("/version").json() == {"version": __version__}
