"""transformers' own rendering is the oracle."""

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from stoker_engine.errors import ParameterError
from stoker_engine.frontend.chat_template import ChatTemplate
from stoker_engine.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMING = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}{{ eos_token }}{% endfor %}"
FEATURES = """{%- set ns = namespace(n=0) -%}
{%- for m in messages -%}
    {%- if m.role == 'skip' -%}{%- continue -%}{%- endif -%}
    {%- set ns.n = ns.n + 1 -%}
    {%- if m.role == 'assistant' -%}
        {% generation %}{{ m.content }}{% endgeneration %}
    {%- else -%}
        {{ {'<': m.content, 'é': [1, none]} | tojson }}
    {%- endif -%}
{%- endfor -%}
{{ ns.n }} {{ strftime_now('%Y') | length }} {{ tools is none }} {{ documents is none }} {{ enable_thinking is defined }}
{{- messages[-1].reasoning_content | default('-') }}{{ messages[-1].thinking | default('-') }}"""
SYSTEM_FIRST = """{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be first') }}{% endif %}
<{{ m.role }}>{{ m.content }}{% endfor %}"""
THREE_ROLES = "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"

USER = {"role": "user", "content": "hi  "}
DIALOG = [{"role": "system", "content": " s "}, USER, {"role": "assistant", "content": "yes <b>  "}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, messages: list[dict[str, Any]], *, generate: bool = True, go_on: bool = False, **kwargs: Any) -> str:
    template = ChatTemplate(source, TOKENS)
    return template.render(messages, add_generation_prompt=generate, continue_final_message=go_on, template_kwargs=kwargs)


def oracle(source: str, messages: list[dict[str, Any]], *, generate: bool = True, go_on: bool = False, **kwargs: Any) -> str:
    rendered, _ = render_jinja_template([messages], chat_template=source, add_generation_prompt=generate, continue_final_message=go_on, **TOKENS, **kwargs)
    return str(rendered[0])


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("messages", [[USER], DIALOG, [*DIALOG, USER]], ids=["one", "three", "four"])
@pytest.mark.parametrize("source", [CHATML, TRIMMING, FEATURES, SYSTEM_FIRST])
def test_a_prompt_equals_the_one_that_transformers_renders(source: str, messages: list[dict[str, str]], generate: bool) -> None:  # noqa: FBT001
    assert render(source, messages, generate=generate) == oracle(source, messages, generate=generate)


@pytest.mark.parametrize("source", [CHATML, TRIMMING])
def test_a_continued_message_ends_where_transformers_ends_it(source: str) -> None:
    assert render(source, DIALOG, generate=False, go_on=True) == oracle(source, DIALOG, generate=False, go_on=True)


TOOL = {
    "type": "function",
    "function": {"name": "read_sensor", "description": "Ä <b>", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "read_sensor", "arguments": {"n": 4, "unit": "°"}}}
CALLING: list[dict[str, Any]] = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "17.2"},
]
TOOLS = """{%- if tools -%}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{%- endif -%}
{%- for m in messages -%}<{{ m.role }}>{{ m.content }}
{%- for call in m.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
{%- endfor -%}{%- if add_generation_prompt -%}<assistant>{%- endif -%}"""
ARGUMENT_ITEMS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}"
)
ARGUMENT_TEXT = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '```' + c.function.arguments + '```' }}{% endfor %}{% endfor %}"
NULL_CONTENT = "{% for m in messages %}{% if m['content'] is none %}calls{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
PARTS = "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("tools", [None, [TOOL], [TOOL, TOOL]])
@pytest.mark.parametrize("messages", [[USER], CALLING, [*CALLING, DIALOG[2]]], ids=["one", "calling", "after"])
@pytest.mark.parametrize("source", [TOOLS, FEATURES, ARGUMENT_ITEMS])
def test_tools_and_calls_render_as_with_transformers(source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> None:
    rendered = ChatTemplate(source, TOKENS).render(messages, add_generation_prompt=True, continue_final_message=False, template_kwargs={}, tools=tools)
    assert rendered == oracle(source, messages, tools=tools)


def test_a_template_that_adds_texts_gets_the_arguments_as_text() -> None:
    assert render(ARGUMENT_TEXT, CALLING) == '```{"n": 4, "unit": "°"}```'


@pytest.mark.case("C008")
@pytest.mark.parametrize(("source", "rendered"), [(NULL_CONTENT, "hi  calls17.2"), ("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", "hi  ..17.2.")])
def test_a_template_sees_missing_content_as_it_asks_for_it(source: str, rendered: str) -> None:
    for content in (None, ""):
        assert render(source, [CALLING[0], {**CALLING[1], "content": content}, CALLING[2]]) == rendered
    assert render(source, [CALLING[0], {key: value for key, value in CALLING[1].items() if key != "content"}, CALLING[2]]) == rendered


def test_a_template_that_takes_parts_alone_gets_parts() -> None:
    parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in DIALOG]
    assert render(PARTS, DIALOG) == oracle(PARTS, parts)


def test_template_kwargs_reach_the_template() -> None:
    assert render(FEATURES, [USER], enable_thinking=False) == oracle(FEATURES, [USER], enable_thinking=False)


def test_the_real_models_template_renders_as_with_transformers(smollm2_tokenizer: Tokenizer) -> None:
    assert smollm2_tokenizer.chat_template is not None
    for messages in ([USER], DIALOG):
        assert render(smollm2_tokenizer.chat_template, messages) == oracle(smollm2_tokenizer.chat_template, messages)


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_template_kwargs_cannot_replace_what_the_server_sets(name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        ChatTemplate(CHATML, {}).render([USER], add_generation_prompt=True, continue_final_message=False, template_kwargs={name: []})


@pytest.mark.case("C011")
def test_a_developer_message_is_a_system_message_to_a_template_that_knows_no_developers() -> None:
    developer = {"role": "developer", "content": "Answer in caps"}
    assert render(THREE_ROLES, [developer, USER]) == render(THREE_ROLES, [{**developer, "role": "system"}, USER])


@pytest.mark.case("C011")
def test_a_system_and_a_developer_message_become_one_system_block() -> None:
    rendered = render(SYSTEM_FIRST, [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, USER])
    assert rendered.count("<system>") == 1 and 0 < rendered.index("A") < rendered.index("B") < rendered.index("<user>")


@pytest.mark.parametrize("source", [NULL_CONTENT, SYSTEM_FIRST])
@pytest.mark.parametrize("empty", [{}, {"content": None}, {"content": None, "tool_calls": CALLING[1]["tool_calls"]}])
def test_a_system_message_without_content_adds_nothing_to_the_system_block(source: str, empty: dict[str, Any]) -> None:
    developer = {"role": "developer", "content": "B"}
    assert render(source, [{"role": "system", **empty}, developer, USER]) == render(source, [developer, USER])


@pytest.mark.case("C011")
def test_a_template_that_mentions_developers_gets_them() -> None:
    assert render(CHATML + "{# developer #}", [{"role": "developer", "content": "x"}]).startswith("<|im_start|>developer")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('Conversation roles must alternate') }}", "Conversation roles must alternate"),
        ("{{ 1 + messages }}", "unsupported operand"),
        ("{{ nothing.at.all }}", "is undefined"),
        ("{{ 1 // 0 }}", "by zero"),
        ("{% if %}", "Expected an expression"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
    ],
)
def test_what_a_template_raises_is_a_parameter_error_with_its_words(source: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        render(source, [USER])
    assert caught.value.parameter == "messages"


def test_a_final_message_that_the_template_drops_cannot_be_continued() -> None:
    with pytest.raises(ParameterError) as caught:
        render("{{ messages[0].content }}", DIALOG, generate=False, go_on=True)
    assert caught.value.parameter == "continue_final_message"
