"""What the api and the engine download of an hf:// model. The hub library is imported only for those."""

from typing import TYPE_CHECKING

from stoker_engine.config import ModelConfig

if TYPE_CHECKING:
    from stoker_engine.hub.fetch import HubFetch


def fetch_tokenizer(model: ModelConfig, cache_dir: str | None, pin_directory: str | None) -> "HubFetch":
    """Begins to download configuration, tokenizer and chat template: at the commit that `pin_directory` names, which is else pinned there.

    Raises ConfigError for an address that is none.
    """
    from stoker_engine.hub.fetch import FileSet, fetch

    return fetch(model, cache_dir, pin_directory, FileSet.TOKENIZER)


def fetch_weights(model: ModelConfig, cache_dir: str | None, pin_directory: str | None) -> "HubFetch":
    """The same for all that the engine needs."""
    from stoker_engine.hub.fetch import FileSet, fetch

    return fetch(model, cache_dir, pin_directory, FileSet.MODEL)
