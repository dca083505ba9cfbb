from typing import Any

import pytest

from stoker_engine.errors import ParameterError
from stoker_engine.frontend.renderer import Renderer, TemplatedPrompt, prompt_text
from stoker_engine.tokenizer import Tokenizer

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def renderer(smollm2_tokenizer: Tokenizer) -> Renderer:
    return Renderer(smollm2_tokenizer)


@pytest.mark.parametrize(
    ("prompts", "rendered"),
    [
        ("text", ["text"]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [1], TemplatedPrompt("b")], ["a", [1], TemplatedPrompt("b")]),
        (TemplatedPrompt("a"), [TemplatedPrompt("a")]),
    ],
)
def test_one_prompt_or_several_become_a_list(renderer: Renderer, prompts: Any, rendered: list[Any]) -> None:
    assert renderer.render_cmpl(prompts) == rendered


@pytest.mark.parametrize("prompts", [[], None, 7, {"prompt": "a"}, ["a", None], [b"a"]])
def test_what_is_no_prompt_is_refused(renderer: Renderer, prompts: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        renderer.render_cmpl(prompts)
    assert caught.value.parameter == "prompt"


def test_a_conversation_asks_for_an_answer(renderer: Renderer) -> None:
    assert renderer.render_chat([USER]).text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert renderer.render_chat([USER], add_generation_prompt=False).text.endswith("hi<|im_end|>\n")


def test_a_final_message_is_continued_without_asking_for_another(renderer: Renderer) -> None:
    assert renderer.render_chat([USER, {"role": "assistant", "content": "Well,"}], continue_final_message=True).text.endswith("assistant\nWell,")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "non-empty list"),
        ("hi", "non-empty list"),
        (USER, "non-empty list"),
        (["hi"], r"messages\[0\] must be a message with role and content, got a str"),
        ([USER, {"role": "user"}], r"messages\[1\] has no content"),
        ([{"content": "a"}], r"messages\[0\] has no role"),
        ([{"role": "user", "content": [1]}], r"messages\[0\].content must be a text, got a list"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}], r"messages\[1\].tool_calls: .*function"),
    ],
)
def test_what_is_no_conversation_is_refused(renderer: Renderer, messages: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        renderer.render_chat(messages)


def test_a_model_without_a_template_says_so(byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(ParameterError, match="no chat template"):
        Renderer(byte_tokenizer).render_chat([USER])


def test_the_text_of_a_prompt_is_shown_where_it_has_one() -> None:
    assert [prompt_text(prompt) for prompt in ("a", TemplatedPrompt("b"), [1])] == ["a", "b", None]


def test_tools_have_a_template_of_their_own_where_the_model_has_one(smollm2_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2_tokenizer, "tool_template", "{{ tools[0].name }}: {{ messages[0].content }}")
    renderer = Renderer(smollm2_tokenizer)
    assert renderer.render_chat([USER], tools=[{"name": "f"}]).text == "f: hi"
    assert renderer.render_chat([USER], tools=[]).text == renderer.render_chat([USER]).text == Renderer(smollm2_tokenizer).render_chat([USER]).text
