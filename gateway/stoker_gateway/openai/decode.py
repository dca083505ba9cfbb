"""Request bodies → request structs, with errors that name the first field at fault and never repeat the input."""

import re
from typing import Any, TypeVar

import msgspec

from stoker_gateway.openai.errors import ApiError, nested_too_deeply, too_many_values
from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES, FieldRules, drop_nulls
from stoker_gateway.openai.nesting import MAX_NESTING, is_nested_too_deeply
from stoker_gateway.openai.request import MAX_BODY_VALUES, MAX_CHOICES, ChatCompletionRequest, CompletionRequest, GenerationRequest
from stoker_gateway.openai.tools import check_tools

RequestT = TypeVar("RequestT", bound=msgspec.Struct)

_PATH = re.compile(r" - at `(?:key` in `)?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>\w+)`")
_LONG_VALUE = re.compile(r"""^(Invalid enum value (["']).{100}).+$""", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)


def decode_chat_completion_request(body: bytes) -> ChatCompletionRequest:
    """Raises ApiError (400) for anything but a well-formed request; values that the engine checks are left to it."""
    request = decode_request(body, ChatCompletionRequest, CHAT_RULES)
    _check_stream(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError("top_logprobs needs logprobs to be true.", param="top_logprobs")
    if request.continue_final_message and request.add_generation_prompt:
        raise ApiError("continue_final_message excludes add_generation_prompt.", param="continue_final_message")
    check_tools(request.tools, request.tool_choice)
    return request


def decode_completion_request(body: bytes) -> CompletionRequest:
    """As `decode_chat_completion_request`. With `echo`, max_tokens 0 asks for the prompt's log probabilities alone."""
    request = decode_request(body, CompletionRequest, COMPLETION_RULES)
    _check_stream(request)
    if request.max_tokens == 0 and not request.echo:
        raise ApiError("max_tokens must be at least 1, or 0 together with echo.", param="max_tokens")
    _check_prompts(request.prompt, request.n or 1)
    return request


def _check_prompts(prompt: object, n: int) -> None:
    if not isinstance(prompt, list):
        return
    if not isinstance(prompt[0], int) and len(prompt) * n > MAX_CHOICES:
        raise ApiError(f"prompt has {len(prompt)} prompts and n is {n}; a request has at most {MAX_CHOICES} choices.", param="prompt")
    if len(set(map(type, prompt))) > 1:
        raise ApiError("prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, not a mixture.", param="prompt")


def decode_request(body: bytes, request_type: type[RequestT], rules: FieldRules) -> RequestT:
    """Any endpoint's body. Raises ApiError (400) for what is no JSON object, a field that `rules` refuse or do not know, or an ill-typed value."""
    raw = drop_nulls(_parse(body))
    honored = request_type.__struct_fields__
    for name, value in raw.items():
        if name not in honored:
            rules.check(name, value)
    try:
        return msgspec.convert(raw, request_type, str_keys=True)
    except msgspec.ValidationError as error:
        raise explain(error) from None


def _check_stream(request: GenerationRequest) -> None:
    if request.stream_options is not None and not request.stream:
        raise ApiError("stream_options is only allowed when stream is true.", param="stream_options")
    if request.stream and request.prompt_logprobs is not None:
        raise ApiError("prompt_logprobs is not available when stream is true.", param="prompt_logprobs")


def _parse(body: bytes) -> dict[str, Any]:
    # Every value but the first of its list or object follows a comma: counting them costs a hundredth of making the values.
    if body.count(b",") > MAX_BODY_VALUES:
        raise too_many_values(MAX_BODY_VALUES)
    try:
        parsed = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ApiError(f"We could not parse the JSON body of your request: {error}.", code="invalid_json") from None
    except RecursionError:
        raise nested_too_deeply(MAX_NESTING) from None
    if is_nested_too_deeply(body, parsed):
        raise nested_too_deeply(MAX_NESTING)
    if not isinstance(parsed, dict):
        raise ApiError("The request body must be a JSON object.", code="invalid_json")
    return parsed


def explain(error: msgspec.ValidationError) -> ApiError:
    """msgspec's "Expected `int`, got `str` - at `$.n`" as "n: expected int, got str", with param n."""
    text = str(error)
    match = _PATH.search(text)
    path = match["path"].removesuffix("[...]") if match else ""
    detail = text[: match.start()] if match else text
    if missing := _MISSING.match(detail):
        name = _join(path, missing["name"])
        return ApiError(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if unknown := _UNKNOWN.match(detail):
        name = _join(path, unknown["name"][:100])
        return ApiError(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    detail = _LONG_VALUE.sub(r"\1…\2", detail.replace("`", ""))
    return ApiError(f"Invalid value for '{path}': {detail[:1].lower()}{detail[1:]}.", param=path or None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
