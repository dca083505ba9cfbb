"""GET /v1/models and /v1/models/{model}."""

from starlette.requests import Request
from starlette.responses import Response

from stoker_gateway.api.state import ApiState
from stoker_gateway.http.json_response import json_response
from stoker_gateway.openai.protocol import Model, ModelList, encode


async def list_models(state: ApiState, _request: Request) -> Response:
    """The served name and its aliases. Raises EngineNotReadyError while nothing can be asked of them."""
    return json_response(encode(ModelList([_model(state, name) for name in state.model_names])))


async def get_model(state: ApiState, request: Request) -> Response:
    name = request.path_params["model"]
    state.check_model(name)
    return json_response(encode(_model(state, name)))


def _model(state: ApiState, name: str) -> Model:
    root = state.model_names[0]
    return Model(id=name, created=state.created, root=root, parent=None if name == root else root, max_model_len=state.check_ready().max_model_len)
