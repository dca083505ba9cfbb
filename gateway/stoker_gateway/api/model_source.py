"""Where the api finds its tokenizer: on this machine, or on a hub, from which it takes no weights."""

import asyncio
import logging
from pathlib import Path

from stoker_engine.config import seconds
from stoker_engine.model_fetch import fetch_tokenizer
from stoker_engine.model_files import is_on_hub, resolve_model
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.http.drain import Drain

logger = logging.getLogger(__name__)


async def find_model(config: ApiConfig, drain: Drain) -> Path | None:
    """The directory or GGUF file. None where the process is told to stop before it is there.

    Raises ConfigError or ModelLoadError for what is wrong with it, StartupTimeoutError where the download takes longer than startupTimeout.
    """
    if not is_on_hub(config.model.uri):
        return await asyncio.to_thread(resolve_model, config.model.uri)
    fetch = fetch_tokenizer(config.model, config.model_cache_dir, config.socket_dir)
    limit = seconds(config.lifecycle.startup_timeout)
    path, stop = asyncio.wrap_future(fetch.path), asyncio.create_task(drain.requested())
    try:
        done, _ = await asyncio.wait((path, stop), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    if path in done:
        return path.result()
    if not done:
        raise fetch.too_late(limit)
    logger.info("told to stop while the model is downloaded")
    return None
