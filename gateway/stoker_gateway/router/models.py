"""GET /v1/models: every name that requests may ask for, of all InferenceDeployments."""

from typing import Literal

import msgspec

from stoker_gateway.openai.errors import model_not_found
from stoker_gateway.router.errors import not_synced
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.served_model import ServedModel

_encode = msgspec.json.Encoder().encode


class ListedModel(msgspec.Struct):
    """`root` is the name the model is served under first; another one points to it by `parent`."""

    id: str
    created: int
    root: str
    parent: str | None
    object: Literal["model"] = "model"
    owned_by: str = "stoker"


class ListedModels(msgspec.Struct):
    data: list[ListedModel]
    object: Literal["list"] = "list"


def list_models(fleet: Fleet) -> bytes:
    """Also those that have no replicas now: the same from every gateway. Raises ApiError (503) before the gateway knows them."""
    if not fleet.is_synced:
        raise not_synced()
    return _encode(ListedModels([_listed(model, name) for model in fleet.models for name in model.names]))


def get_model(fleet: Fleet, name: str) -> bytes:
    """Raises ApiError (404) for a name that is nobody's."""
    model = fleet.find(name)
    if model is None:
        raise model_not_found(name) if fleet.is_synced else not_synced()
    return _encode(_listed(model, name))


def _listed(model: ServedModel, name: str) -> ListedModel:
    root = model.names[0]
    return ListedModel(id=name, created=model.view.created, root=root, parent=None if name == root else root)
