import pytest

from stoker_engine.errors import ParameterError
from stoker_engine.sampling_params import StructuredOutputs
from stoker_engine.structured_output_checks import MAX_CHARACTERS, MAX_CHOICES, MAX_DEPTH, check_structured_outputs


@pytest.mark.parametrize(
    "wanted",
    [
        StructuredOutputs("json", "{}"),
        StructuredOutputs("json", "true"),
        StructuredOutputs("json", '{"type": "object"}'),
        StructuredOutputs("json_object"),
        StructuredOutputs("regex", "a+"),
        StructuredOutputs("choice", '["a", "b"]'),
        StructuredOutputs("grammar", 'root ::= "a"'),
        StructuredOutputs("structural_tag", '{"type": "structural_tag"}'),
        StructuredOutputs("grammar", "(" * MAX_DEPTH + ")" * MAX_DEPTH),
    ],
)
def test_what_has_the_right_shape_is_left_to_the_compiler(wanted: StructuredOutputs) -> None:
    check_structured_outputs(wanted)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (StructuredOutputs("json", "[1]"), "json must be a JSON schema: an object"),
        (StructuredOutputs("json", "{"), "json must be a JSON schema: an object: Input data was truncated"),
        (StructuredOutputs("json", " "), "json must not be empty"),
        (StructuredOutputs("json_object", "false"), "json_object must be true alone"),
        (StructuredOutputs("grammar", "\n"), "grammar must not be empty"),
        (StructuredOutputs("regex", "a" * (MAX_CHARACTERS + 1)), f"regex must have at most {MAX_CHARACTERS} characters, got {MAX_CHARACTERS + 1}"),
        (StructuredOutputs("regex", "(" * (MAX_DEPTH + 1)), f"regex must be nested at most {MAX_DEPTH} deep"),
        (StructuredOutputs("json", '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1)), f"json must be nested at most {MAX_DEPTH} deep"),
        (
            StructuredOutputs("json", '["]",' * (MAX_DEPTH + 1) + "1" + "]" * (MAX_DEPTH + 1)),
            f"json must be nested at most {MAX_DEPTH} deep, got {MAX_DEPTH + 1}",
        ),
        (StructuredOutputs("choice", "[]"), f"choice must have 1 to {MAX_CHOICES} strings, none of them empty"),
        (StructuredOutputs("choice", '["a", ""]'), f"choice must have 1 to {MAX_CHOICES} strings, none of them empty"),
        (StructuredOutputs("choice", '["a", 1]'), "choice must be a list of strings: Expected `str`, got `int` - at `$[1]`"),
        (StructuredOutputs("structural_tag", "[]"), "structural_tag must be an object"),
        (StructuredOutputs("regex", "\ud800"), "regex is not valid Unicode: it has a lone surrogate at character 0"),
        (StructuredOutputs("regex", "a\0b"), "regex must not hold the character U+0000"),
        (StructuredOutputs("regex", "a", list(range(65))), "after_token_ids must have at most 64 token ids, got 65"),
        (StructuredOutputs("regex", "a", start_token_id=7), "start_token_id must be a token id beside after_token_ids, got 7"),
        (StructuredOutputs("regex", "a", [1], start_token_id=-1), "start_token_id must be a token id beside after_token_ids, got -1"),
    ],
)
def test_what_has_not_is_refused_by_the_name_of_the_field(wanted: StructuredOutputs, message: str) -> None:
    with pytest.raises(ParameterError) as error:
        check_structured_outputs(wanted)
    assert str(error.value).startswith(f"structured_outputs: {message}")
    assert error.value.parameter == "structured_outputs"
