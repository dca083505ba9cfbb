"""What the flags and the template say of a model's calls and reasoning."""

from pathlib import Path
from typing import Any, get_args

import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.errors import ConfigError
from stoker_engine.tokenizer import Tokenizer
from stoker_gateway.api.chat_format import ChatFormat, apply_chat_template, make_chat_format
from stoker_gateway.api.config import ApiConfig, ReasoningParser, ToolCallParser
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.reasoning.detect import THINK_TAGS, Thinking, thinking_of
from stoker_gateway.reasoning.think import MISTRAL_THINK, THINK
from stoker_gateway.tools.formats import TOOL_FORMATS


def config(**fields: Any) -> ApiConfig:
    return ApiConfig(model=ModelConfig(uri="file:///model"), **fields)


def test_every_format_has_its_name_among_the_settings() -> None:
    assert set(get_args(ToolCallParser)) == {"auto", "none", *TOOL_FORMATS}
    assert set(get_args(ReasoningParser)) == {"auto", "none", "harmony", *THINK_TAGS}


@pytest.mark.parametrize(
    ("template", "settings", "tools", "think"),
    [
        ("{{ tools }}<tool_call> arguments <think></think>", {}, "hermes", THINK),
        ("{{ tools }}<tool_call> arguments <think></think>", {"tool_call_parser": "none", "reasoning_parser": "none"}, None, None),
        ("plain", {"tool_call_parser": "pythonic", "reasoning_parser": "think"}, "pythonic", THINK),
        ("[TOOL_CALLS] [THINK] [/THINK]", {}, "mistral", MISTRAL_THINK),
        ("<|channel|> <|call|> </think>", {}, "harmony", None),
        ("plain", {"reasoning_parser": "harmony"}, "harmony", None),
        ("plain", {}, None, None),
    ],
)
def test_flags_win_over_what_the_template_tells(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, template: str, settings: dict[str, Any], tools: str | None, think: object
) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", template)
    chat_format = make_chat_format(config(**settings), tokenizer)
    assert (chat_format.tools and chat_format.tools.name, chat_format.think) == (tools, think)


def test_a_template_file_takes_the_place_of_the_models_own(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chat_template", "tool_template"):
        monkeypatch.setattr(tokenizer, name, "own")
    apply_chat_template(config(), tokenizer)
    assert (tokenizer.chat_template, tokenizer.tool_template) == ("own", "own")
    (tmp_path / "new.jinja").write_text("new")
    apply_chat_template(config(chat_template=str(tmp_path / "new.jinja")), tokenizer)
    assert (tokenizer.chat_template, tokenizer.tool_template) == ("new", None)


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"{% if", "line 1"), (b"\xff", "cannot be read")])
def test_a_template_file_that_is_none_ends_the_start(tokenizer: Tokenizer, tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "bad.jinja").write_bytes(content)
    with pytest.raises(ConfigError, match=f"--chat-template .*{words}"):
        apply_chat_template(config(chat_template=str(tmp_path / "bad.jinja")), tokenizer)


@pytest.mark.parametrize(
    ("template", "effort", "kwargs"),
    [
        ("{{ reasoning_effort }}", "high", {"reasoning_effort": "high"}),
        ("{{ enable_thinking }}", "none", {"enable_thinking": False}),
        ("{{ enable_thinking }}", "low", {"enable_thinking": True}),
        ("plain", None, {}),
    ],
)
def test_an_effort_is_told_to_the_template_as_it_can_be(template: str, effort: str | None, kwargs: dict[str, object]) -> None:
    assert ChatFormat(None, None, template).effort_kwargs(effort) == kwargs


def test_an_effort_that_cannot_be_told_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        ChatFormat(None, None, "plain").effort_kwargs("low")
    assert caught.value.param == "reasoning_effort"


@pytest.mark.parametrize(
    ("prompt", "is_continued", "thinking"),
    [
        ("<think>a</think>b user", False, Thinking.TO_COME),
        ("user <think>", False, Thinking.BEGUN),
        ("user <think>\n", False, Thinking.BEGUN),
        ("user <think>\n\n</think>\n\n", False, Thinking.OVER),
        ("user <think> what a word", False, Thinking.TO_COME),
        ("assistant <think> I was", True, Thinking.BEGUN),
        ("assistant <think> I was.</think> So", True, Thinking.OVER),
        ("assistant So", True, Thinking.OVER),
    ],
)
def test_the_end_of_the_prompt_tells_whether_reasoning_comes(prompt: str, is_continued: bool, thinking: Thinking) -> None:  # noqa: FBT001
    assert thinking_of(THINK, prompt, is_continued=is_continued) is thinking
