import json
from typing import Any

import pytest

from stoker_engine.sampling_params import StructuredOutputs
from stoker_engine.worker.linear_grammars import MAX_ALTERNATIVES, is_linear

OBJECT = {"type": "object", "properties": {"pattern": {"type": ["string", "null"]}, "type": {"type": "string"}}}


def tag(content: object) -> dict[str, Any]:
    return {"type": "structural_tag", "format": {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"}}


def of_schema(schema: object) -> dict[str, Any]:
    return tag({"type": "json_schema", "json_schema": schema})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json_object", ""),
        ("json", "true"),
        ("json", OBJECT),
        ("json", {"anyOf": [{"const": number} for number in range(MAX_ALTERNATIVES)]}),
        ("json", {"enum": [str(number) for number in range(1000)]}),
        ("choice", ["a pattern"]),
        ("structural_tag", of_schema(OBJECT)),
        ("structural_tag", tag({"type": "sequence", "elements": [{"type": "any_text"}, {"type": "token", "token": 3}]})),
    ],
)
def test_what_has_few_alternatives_is_followed_at_once(kind: Any, value: object) -> None:
    assert is_linear(StructuredOutputs(kind, value if isinstance(value, str) else json.dumps(value)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "a"),
        ("grammar", 'root ::= "a"'),
        ("json", {"type": "string", "pattern": "(a+)+"}),
        ("json", '{"type":"string","p\\u0061ttern":"(a+)+"}'),
        ("json", '{"type":"string","pattern":"(a+)+","pattern":{}}'),
        ("json", {"type": "object", "patternProperties": {"(a+)+": True}}),
        ("json", {"anyOf": [{"type": "string", "maxLength": number} for number in range(MAX_ALTERNATIVES)]} | {"oneOf": [True]}),
        ("json", '{"const":' + "1" * 5000 + "}"),
        ("structural_tag", of_schema({"type": "string", "pattern": "(a+)+"})),
        ("structural_tag", tag({"type": "regex", "pattern": "a"})),
        ("structural_tag", tag({"type": "grammar", "grammar": 'root ::= "a"'})),
        ("structural_tag", tag({"type": "star", "content": {"type": "const_string", "value": "a"}})),
        ("structural_tag", tag({"type": "sequence", "elements": [{"type": "any_text"}] * MAX_ALTERNATIVES})),
    ],
)
def test_what_may_be_ambiguous_or_has_many_alternatives_is_followed_with_a_limit(kind: Any, value: object) -> None:
    assert not is_linear(StructuredOutputs(kind, value if isinstance(value, str) else json.dumps(value)))
