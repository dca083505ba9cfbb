"""Query strings → structs."""

from collections.abc import Collection
from typing import TypeVar

import msgspec
from starlette.requests import Request

from stoker_gateway.openai.decode import explain
from stoker_gateway.openai.errors import ApiError

QueryT = TypeVar("QueryT")


def decode_query(request: Request, kind: type[QueryT], *, lists: Collection[str] = ()) -> QueryT:
    """Parameters in `lists` may be given more than once, also with `[]` after the name. Raises ApiError (400)."""
    params = request.query_params
    values = {name.removesuffix("[]"): params.getlist(name) if name in lists else params[name] for name in params}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        explained = explain(error)
        raise ApiError(f"The query string is wrong: {explained.message}", param=explained.param, code="invalid_query") from None
