"""`response_format` and `structured_outputs` → the engine's StructuredOutputs. The engine compiles them; here only their shape is checked."""

import msgspec

from stoker_engine.sampling_params import StructuredOutputs
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.structured_outputs import JsonSchemaFormat, ResponseFormat, StructuredOutputsRequest, check_strict, schema_text


def structured_outputs(response_format: ResponseFormat | None, extra: StructuredOutputsRequest | None) -> StructuredOutputs | None:
    """The form that a request asks for; None for free text. Raises ApiError (400) where it asks for two, or for none with the field there."""
    form = None if response_format is None else _of_response_format(response_format)
    if extra is None:
        return form
    if form is not None:
        raise ApiError("response_format and structured_outputs exclude each other.", param="structured_outputs")
    return _of_structured_outputs(extra)


def json_schema_output(named: JsonSchemaFormat, param: str) -> StructuredOutputs:
    """The form of a named schema, for the request field `param`. Raises ApiError (400) where it is too large, or strict and leaves something open."""
    text = schema_text(named.schema, f"{param}.schema")
    if named.strict:
        check_strict(named.name, named.schema, f"{param}.schema")
    return StructuredOutputs("json", text, parameter=param)


def _of_response_format(wanted: ResponseFormat) -> StructuredOutputs | None:
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise ApiError("response_format of type json_schema needs json_schema.", param="response_format.json_schema", code="missing_required_parameter")
        return json_schema_output(wanted.json_schema, "response_format.json_schema")
    if wanted.json_schema is not None:
        raise ApiError(f"response_format of type {wanted.type} must have no json_schema.", param="response_format.json_schema")
    return StructuredOutputs("json_object", parameter="response_format") if wanted.type == "json_object" else None


def _of_structured_outputs(wanted: StructuredOutputsRequest) -> StructuredOutputs:
    given = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not None}
    if len(given) != 1:
        names = ", ".join(wanted.__struct_fields__)
        found = " and ".join(given) or "none"
        raise ApiError(f"structured_outputs must have exactly one of {names}, got {found}.", param="structured_outputs")
    ((kind, value),) = given.items()
    if kind == "json_object" and not value:
        raise ApiError("structured_outputs.json_object must be true where it is given.", param="structured_outputs.json_object")
    text = "" if kind == "json_object" else schema_text(value, f"structured_outputs.{kind}") if isinstance(value, dict) else _text(value)
    return msgspec.convert([kind, text, [], f"structured_outputs.{kind}"], StructuredOutputs)


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
