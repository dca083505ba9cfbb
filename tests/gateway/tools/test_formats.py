"""Each format's parser as a function of a text: what it finds, and that cuts do not matter."""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_gateway.reasoning.think import MISTRAL_THINK, THINK, ContentParser, ThinkParser
from stoker_gateway.tools.format import ToolFormat
from stoker_gateway.tools.formats import TOOL_FORMATS, detect_tool_format
from stoker_gateway.tools.json_list import JSON_LIST
from stoker_gateway.tools.parts import CallArguments, CallBegin, Content, Parser, Reasoning
from stoker_gateway.tools.trimmed import TrimmedParser
from stoker_gateway.tools.uncalled import UncalledParser

NAMES = ("log_reading", "open_valve", "get_time", "f")
FORMATS = {**TOOL_FORMATS, JSON_LIST.name: JSON_LIST}


class Answer(NamedTuple):
    reasoning: str
    content: str
    calls: list[tuple[str, str]]


def read(parser: Parser, pieces: Sequence[str]) -> Answer:
    reasoning, content = "", ""
    calls: list[tuple[str, str]] = []
    for part in [*(part for piece in pieces for part in parser.feed(piece)), *parser.finish()]:
        match part:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case CallBegin(name, _):
                calls.append((name, ""))
            case CallArguments(text):
                calls[-1] = (calls[-1][0], calls[-1][1] + text)
    return Answer(reasoning, content, calls)


def parser_of(tool_format: ToolFormat) -> Parser:
    parser: Parser = tool_format.parser(NAMES)
    return TrimmedParser(parser if tool_format.name == "harmony" else ThinkParser(THINK, parser, is_open=False))


def read_text(name: str, *pieces: str) -> Answer:
    return read(parser_of(FORMATS[name]), pieces)


def check_each_cut(name: str, text: str, expected: Answer) -> None:
    """In one piece, in two, and character by character."""
    assert read_text(name, text) == expected
    assert read_text(name, *text) == expected
    for cut in range(1, len(text)):
        assert read_text(name, text[:cut], text[cut:]) == expected


def three_pieces(text: str) -> Iterator[tuple[str, str, str]]:
    """Every way to cut it so."""
    for first, second in combinations(range(1, len(text)), 2):
        yield text[:first], text[first:second], text[second:]


def check_three_pieces(name: str, text: str, expected: Answer) -> None:
    assert all(read_text(name, *pieces) == expected for pieces in three_pieces(text))


LOG = '{"site":"Åse \\"B\\"","celsius":-3.5}'
VALVE = '{"pct": 40, "note": "</tool_call>; [TOOL_CALLS] } ] <|end|"}'
DS = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
ONE = [("log_reading", LOG)]
TWO = [("log_reading", LOG), ("open_valve", VALVE)]
TIME = [("get_time", "{}")]

CASES = [
    ("hermes", f'<tool_call>{{"name":"log_reading","arguments":{LOG}}}</tool_call>', "", ONE),
    ("hermes", f'Sure.\n<tool_call>\n{{"name": "log_reading", "arguments": {LOG}}}\n</tool_call>\n<tool_call>\n{{"name": "open_valve", "arguments": {VALVE}}}'
     "\n</tool_call>\n", "Sure.", TWO),
    ("hermes", f'<tool_call>{{"arguments": {LOG}, "name": "log_reading"}}</tool_call> Done.', "Done.", ONE),
    ("hermes", f'<tool_call>[{{"name": "log_reading", "arguments": {LOG}}}, {{"name": "open_valve", "arguments": {VALVE}}}]</tool_call>', "", TWO),
    ("hermes", '<tool_call>{"name": "get_time"}</tool_call>', "", TIME),
    ("hermes", '<tool_call>{"name": "get_time", "arguments": null}</tool_call>', "", TIME),
    ("hermes", '<tool_call>{"name": "get_time", "arguments": ""}</tool_call>', "", TIME),
    ("hermes", f'<tool_call>{{"name": "log_reading", "arguments": {json.dumps(LOG)}}}</tool_call>', "", ONE),
    ("hermes", f'<tool_call>{{"name":"log_reading","arguments":{LOG}</tool_call>', "", ONE),
    ("hermes", f'<tool_call>{{"name":"log_reading","arguments":{LOG}}}', "", ONE),
    ("hermes", f'{{"name":"log_reading","arguments":{LOG}}}', f'{{"name":"log_reading","arguments":{LOG}}}', []),
    ("llama3_json", f'{{"name": "log_reading", "parameters": {LOG}}}', "", ONE),
    ("llama3_json", f'<|python_tag|>{{"name": "log_reading", "parameters": {LOG}}}; {{"name": "open_valve", "parameters": {VALVE}}}', "", TWO),
    ("llama3_json", f'{{"type": "function", "name": "log_reading", "parameters": {LOG}}}', "", ONE),
    ("llama3_json", 'I see.<|python_tag|>{"name": "get_time", "parameters": {}}', "I see.", TIME),
    ("llama3_json", '{"name": "Ada", "parameters": {}}', '{"name": "Ada", "parameters": {}}', []),
    ("pythonic", r'[log_reading(site="Åse \"B\"", celsius=-3.5), get_time()]', "", [*ONE, *TIME]),
    ("pythonic", "<|python_start|>[get_time()]<|python_end|> ok", "ok", TIME),
    ("pythonic", "[1, 2, 3]", "[1, 2, 3]", []),
    ("pythonic", "[other(a=1)]", "[other(a=1)]", []),
    ("pythonic", "[get_time(open('x'))]", "[get_time(open('x'))]", []),
    ("mistral", f'[TOOL_CALLS] [{{"name": "log_reading", "arguments": {LOG}}}, {{"name": "open_valve", "arguments": {VALVE}}}]', "", TWO),
    ("mistral", f"Hm [TOOL_CALLS]log_reading[ARGS]{LOG}[TOOL_CALLS]open_valve[CALL_ID]abcdefghi[ARGS]{VALVE}", "Hm", TWO),
    ("mistral", f"[TOOL_CALLS]log_reading{LOG}", "", ONE),
    ("mistral_v11", f"[TOOL_CALLS]log_reading[ARGS]{LOG}", "", ONE),
    ("deepseek_v3", f"<｜tool▁calls▁begin｜>{DS.format('log_reading', LOG)}\n{DS.format('open_valve', VALVE)}<｜tool▁calls▁end｜>", "", TWO),
    ("deepseek_v31", f"Go.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>log_reading<｜tool▁sep｜>{LOG}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "Go.", ONE),
    ("json_list", f'[{{"name": "log_reading", "parameters": {LOG}}}, {{"name": "open_valve", "parameters": {VALVE}}}]', "", TWO),
    ("harmony", f"<|channel|>commentary to=functions.log_reading <|constrain|>json<|message|>{LOG}<|call|>", "", ONE),
    ("harmony", "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>", "", TIME),
    ("harmony", "<|channel|>final<|message|>Hello <b>", "Hello <b>", []),
]  # fmt: skip


@pytest.mark.case("C004", "C007")
@pytest.mark.parametrize(("name", "text", "content", "calls"), CASES)
def test_a_text_is_read_the_same_however_it_is_cut(name: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    check_each_cut(name, text, Answer("", content, calls))


DS_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁call▁end｜>"
SHORT = [
    ("hermes", 'a<tool_call>{"name":"f","arguments":{"é":"}"}}</tool_call>b', Answer("", "ab", [("f", '{"é":"}"}')])),
    ("llama3_json", '{"name":"f","parameters":{"a":1}};{"name":"f"}', Answer("", "", [("f", '{"a":1}'), ("f", "{}")])),
    ("pythonic", '[f(a="]"), f()] b', Answer("", "b", [("f", '{"a":"]"}'), ("f", "{}")])),
    ("mistral", '[TOOL_CALLS][{"name":"f","arguments":{}},{"name":"f"}]', Answer("", "", [("f", "{}")] * 2)),
    ("mistral_v11", '[TOOL_CALLS]f[ARGS]{"]":"["}[TOOL_CALLS]f{}', Answer("", "", [("f", '{"]":"["}'), ("f", "{}")])),
    ("deepseek_v3", DS_CALL.format("function<｜tool▁sep｜>f\n```json\n{}\n```") + "b", Answer("", "b", [("f", "{}")])),
    ("deepseek_v31", "a" + DS_CALL.format('f<｜tool▁sep｜>{"a":"<"}'), Answer("", "a", [("f", '{"a":"<"}')])),
    ("json_list", ' [{"name":"f","parameters":{"a":[]}}, {"name":"f"}]', Answer("", "", [("f", '{"a":[]}'), ("f", "{}")])),
    ("harmony", "<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", Answer("a", "b", [])),
    ("hermes", "<think>\n a\n</think>\n\nb <tool", Answer("a", "b <tool", [])),
]


@pytest.mark.parametrize(("name", "text", "expected"), SHORT, ids=[name for name, _, _ in SHORT])
def test_a_short_text_is_read_the_same_in_any_three_pieces(name: str, text: str, expected: Answer) -> None:
    check_each_cut(name, text, expected)
    check_three_pieces(name, text, expected)


@pytest.mark.stress
@pytest.mark.parametrize(("name", "text", "content", "calls"), CASES)
def test_a_text_is_read_the_same_in_any_three_pieces(name: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    check_three_pieces(name, text, Answer("", content, calls))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm </think>\n\nyes ", Answer("hm", "yes ", [])),
        ("<think>\n\n</think>\n\nyes", Answer("", "yes", [])),
        ("<think>not over", Answer("not over", "", [])),
        (" no <think>tags</think>", Answer("", " no <think>tags</think>", [])),
        ('<think><tool_call></think><tool_call>{"name": "get_time"}</tool_call>', Answer("<tool_call>", "", TIME)),
    ],
)
def test_reasoning_comes_before_the_answer(text: str, expected: Answer) -> None:
    check_each_cut("hermes", text, expected)


def test_thousands_of_calls_and_marks_are_all_read() -> None:
    call = f'<tool_call>{{"name": "log_reading", "arguments": {LOG}}}</tool_call>'
    assert read_text("hermes", call * 3000).calls == ONE * 3000
    assert read_text("hermes", "<tool_call>" * 3000).content == "<tool_call>" * 3000
    message = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    assert read_text("harmony", message * 3000).reasoning == "\n".join(["Hm."] * 3000)


def test_reasoning_that_began_in_the_prompt_ends_at_its_tag() -> None:
    for tags in (THINK, MISTRAL_THINK):
        for text in (f"hm{tags.end}yes", f"{tags.start}hm\n{tags.end}\nyes"):
            for pieces in (text, *three_pieces(text)):
                assert read(TrimmedParser(ThinkParser(tags, ContentParser(), is_open=True)), pieces) == Answer("hm", "yes", [])


def test_calls_that_nobody_allowed_are_content_however_they_are_cut() -> None:
    text = '<|channel|>analysis<|message|>a<|end|><|channel|>final to=functions.f<|message|>{"b":1}'
    for pieces in (text, *three_pieces(text)):
        assert read(TrimmedParser(UncalledParser(FORMATS["harmony"].parser(NAMES))), pieces) == Answer("a", '{"b":1}', [])


def test_harmony_has_reasoning_preamble_and_call_on_channels() -> None:
    text = (
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>analysis<|message|>More.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Looking.<|end|>"
        "<|start|>assistant to=functions.get_time<|channel|>commentary json<|message|>{}<|call|>"
    )
    expected = Answer("Think.\nMore.", "Looking.", TIME)
    check_each_cut("harmony", text, expected)


BROKEN = [
    ("hermes", "<tool_call>not json</tool_call>"),
    ("hermes", '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"nam'),
    ("hermes", "<tool_call>[1]</tool_call>"),
    ("hermes", "a <tool_call"),
    ("llama3_json", '{"name": "get_time", '),
    ("llama3_json", "<|python_tag|>print(1)"),
    ("pythonic", "[get_time("),
    ("pythonic", "[get_time(1)]"),
    ("mistral", "[TOOL_CALLS]what is this"),
    ("mistral", '[TOOL_CALLS][{"name"'),
    ("deepseek_v3", "<｜tool▁calls▁begin｜>nothing"),
    ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"),
    ("json_list", '[{"name": "x"'),
    ("harmony", "no marks at all"),
]


@pytest.mark.parametrize(("name", "text"), BROKEN)
def test_what_is_no_call_is_content_to_the_last_character(name: str, text: str) -> None:
    check_each_cut(name, text, Answer("", text, []))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("harmony", "pythonic")])
def test_a_call_that_is_cut_short_keeps_what_there_is_of_its_arguments(name: str) -> None:
    text = next(text for case, text, _, calls in CASES if case == name and calls in (ONE, TWO))
    end = text.index("celsius")
    assert read_text(name, text[:end]).calls == [("log_reading", LOG[: LOG.index("celsius")])]


def test_a_line_break_inside_an_argument_becomes_json() -> None:
    (call,) = read_text("hermes", '<tool_call>{"name": "log_reading", "arguments": {"site": "a\nb\tc"}}</tool_call>').calls
    assert json.loads(call[1]) == {"site": "a\nb\tc"}


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|python_start|>", "<|python_end|>", "<think>", "</think>"),
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "function", "```json", "```"),
        *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>", "analysis", "final", "commentary", " to=functions.f"),
        *('"name"', '"arguments"', '"parameters"', '"id"', ":", ",", ";", "{", "}", "[", "]", "(", ")", '"', "\\", "=", " ", "\n", "a", "é", "😀", "1", "null"),
        *('{"name": "get_time", "arguments": {"a": [1, "x"]}}', '"get_time"', "get_time", "get_time(a=1)", '{"a": 1}', "<", "<|", "to", "\t"),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=14).map("".join)


def check_cuts(name: str, text: str, cuts: set[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert read_text(name, *(text[start:end] for start, end in pairwise(places))) == read_text(name, text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), TEXTS, st.sets(st.integers(1, 60)))
def test_any_text_is_read_the_same_however_it_is_cut(name: str, text: str, cuts: set[int]) -> None:
    check_cuts(name, text, cuts)


@pytest.mark.stress
@settings(max_examples=40_000, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), TEXTS, st.sets(st.integers(1, 60)))
def test_any_of_many_texts_is_read_the_same_however_it_is_cut(name: str, text: str, cuts: set[int]) -> None:
    check_cuts(name, text, cuts)
    assert read_text(name, *text) == read_text(name, text)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ('{{ "<tool_call>" }} {"name": <function-name>, "arguments": <args-json-object>}', "hermes"),
        ("<tool_call>\n<function=example>", None),
        ("<|im_start|>", None),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS] [ARGS]", "mistral_v11"),
        ("<｜tool▁calls▁begin｜><｜tool▁sep｜>```json", "deepseek_v3"),
        ("<｜tool▁calls▁begin｜><｜tool▁sep｜>", "deepseek_v31"),
        ('<|start_header_id|> {"name": function name, "parameters": dictionary}', "llama3_json"),
        ("<|start|><|channel|>analysis<|call|>", "harmony"),
    ],
)
def test_a_template_tells_its_format(template: str, name: str | None) -> None:
    found = detect_tool_format(template)
    assert (found and found.name) == name
