"""The shape of the model that is served, read from its files."""

from stoker_engine.model_files import resolve_model
from stoker_engine.models.config import ModelShape, read_config
from stoker_engine.models.gguf_weights import open_gguf


def model_shape(model_uri: str) -> ModelShape:
    path = resolve_model(model_uri)
    return read_config(path) if path.is_dir() else open_gguf(path).shape
