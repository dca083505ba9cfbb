"""A ready EngineCoreRequest in the place of a prompt: still taken, once with a warning."""

import functools
import logging

from stoker_engine.frontend.input_processor import RequestOptions
from stoker_engine.frontend.renderer import Prompt
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams

logger = logging.getLogger(__name__)


def unpack_request(request: EngineCoreRequest, request_id: str) -> tuple[Prompt, SamplingParams, RequestOptions]:
    """What the request was made of, to be checked like any other: it may be of another engine's making. Its own id wins over `request_id`."""
    _warn_once()
    own_id = request.external_request_id or request.request_id
    if own_id != request_id:
        logger.warning("request %s: its own id is used, not %s", own_id, request_id)
    options = RequestOptions(
        request_id=own_id,
        arrival_time=request.arrival_time,
        priority=request.priority,
        cache_salt=request.cache_salt,
        trace_headers=request.trace_headers,
    )
    return request.prompt_token_ids, request.sampling_params, options


@functools.cache
def _warn_once() -> None:
    logger.warning("a ready EngineCoreRequest is deprecated as a prompt; pass what Renderer.render_cmpl() or render_chat() returns")
