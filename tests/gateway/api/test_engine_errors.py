import pytest

from stoker_engine.errors import EngineBusyError, EngineError, EngineGenerateError
from stoker_gateway.api.engine_errors import to_api_error


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (EngineGenerateError("no"), 500, "internal_error", None),
        (EngineBusyError("others take its time; try again later"), 503, "engine_busy", "1"),
    ],
)
def test_what_may_do_better_later_is_told_to_come_again(error: EngineError, status: int, code: str, retry_after: str | None) -> None:
    told = to_api_error(error)
    assert (told.status, told.code, told.headers.get("Retry-After"), told.message) == (status, code, retry_after, str(error))
