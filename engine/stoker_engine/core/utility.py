"""UTILITY calls: the engine's methods that a client may call by name. An explicit list: any other name is refused."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from stoker_engine.protocol import UtilityOutput, UtilityRequest

if TYPE_CHECKING:
    from stoker_engine.core.engine_core import EngineCore


class UtilityMethods:
    """Each call gets exactly one answer, also when it fails."""

    def __init__(self, core: "EngineCore") -> None:
        self._methods: dict[str, Callable[..., Any]] = {
            "reset_prefix_cache": core.reset_prefix_cache,
            "get_scheduler_stats": lambda: msgspec.structs.asdict(core.scheduler.make_stats()),
        }

    def call(self, request: UtilityRequest) -> UtilityOutput:
        method = self._methods.get(request.method)
        if method is None:
            return UtilityOutput(request.call_id, failure_message=f"{request.method!r} is no utility method; there are {', '.join(self._methods)}")
        try:
            return UtilityOutput(request.call_id, result=method(*request.args))
        except (TypeError, ValueError, RuntimeError) as error:
            return UtilityOutput(request.call_id, failure_message=f"call to {request.method} failed: {error}")
