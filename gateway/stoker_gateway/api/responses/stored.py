"""What is asked about a response that is kept: itself, its input, its end."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from stoker_gateway.api.query import decode_query
from stoker_gateway.api.responses.background import cancel
from stoker_gateway.api.responses.follow import followed
from stoker_gateway.api.responses.store import StoredResponse
from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response
from stoker_gateway.openai.errors import ApiError
from stoker_gateway.openai.protocol import encode
from stoker_gateway.openai.responses.protocol import DeletedResponse, InputItemList

MAX_PAGE = 100


class GetQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`include` has nothing to add to what the response was created with."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    include_obfuscation: bool = False
    include: list[str] = []


class ItemsQuery(msgspec.Struct, forbid_unknown_fields=True):
    after: str | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 20
    order: Literal["asc", "desc"] = "desc"
    include: list[str] = []


async def get_response(state: ApiState, request: Request) -> HttpResponse:
    """As it is now; with `stream`, its events from the one after `starting_after` on."""
    query = decode_query(request, GetQuery, lists=("include", "include[]"))
    stored = _stored(state, request)
    if query.stream:
        return followed(stored, 0 if query.starting_after is UNSET else query.starting_after + 1)
    if query.starting_after is not UNSET:
        raise ApiError("starting_after is only allowed when stream is true.", param="starting_after")
    return json_response(encode(stored.response))


async def delete_response(state: ApiState, request: Request) -> HttpResponse:
    """One that is not over is cancelled."""
    stored = _stored(state, request)
    state.responses.remove(stored.response.id)
    await cancel(stored)
    return json_response(encode(DeletedResponse(stored.response.id)))


async def cancel_response(state: ApiState, request: Request) -> HttpResponse:
    """400 for one that was not made in the background. One that is over stays as it is."""
    stored = _stored(state, request)
    if not stored.response.background:
        raise ApiError("Only a response that was created with background can be cancelled.", param="response_id")
    await cancel(stored)
    return json_response(encode(stored.response))


async def list_input_items(state: ApiState, request: Request) -> HttpResponse:
    """The items that the model has read, earlier responses' included and instructions apart; the newest first unless `order` is asc."""
    query = decode_query(request, ItemsQuery, lists=("include", "include[]"))
    stored = _stored(state, request)
    items = list(stored.conversation[: stored.num_input])
    if query.order == "desc":
        items.reverse()
    if query.after is not UNSET:
        ids = [item.id for item in items]
        if query.after not in ids:
            raise ApiError(f"No item with id '{query.after[:100]}' in this response.", param="after")
        items = items[ids.index(query.after) + 1 :]
    page = items[: query.limit]
    return json_response(encode(InputItemList(page, page[0].id if page else None, page[-1].id if page else None, len(items) > len(page))))


def _stored(state: ApiState, request: Request) -> StoredResponse:
    return state.responses.get(request.path_params["response_id"])
