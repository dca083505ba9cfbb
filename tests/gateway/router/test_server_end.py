"""What a gateway tells of its end where something of it fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stoker_engine.errors import ConfigError, EngineError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.termination import TerminationMessage, read_termination_message
from stoker_gateway.router import server
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.discovery import Discovery
from stoker_gateway.router.fleet import Fleet


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lambda: ExceptionGroup("tasks", [ExceptionGroup("more", [KeyError("x")])]), ("Failed", "serving", "KeyError: 'x'", ExitCode.FAILED)),
        (lambda: ExceptionGroup("tasks", [EngineError("it is away")]), ("Failed", "starting", "it is away", ExitCode.FAILED)),
        (lambda: ConfigError("no cluster"), ("BadConfig", "starting", "no cluster", ExitCode.BAD_CONFIG)),
    ],
)
def test_a_gateway_whose_discovery_fails_tells_the_cause_and_how_far_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], expected: tuple[str, str, str, ExitCode]
) -> None:
    async def fail(_self: Discovery, fleet: Fleet) -> None:
        if expected[1] == "serving":
            fleet.update(())
        raise error()

    monkeypatch.setattr(Discovery, "run", fail)
    path = str(tmp_path / "end")
    config = GatewayConfig(host="127.0.0.1", port=0, termination_message_path=path, static_models=("m=127.0.0.1:1",))
    code = server.run(config)
    message = read_termination_message(path)
    assert isinstance(message, TerminationMessage)
    assert (message.reason, message.phase, message.last_error, code) == expected
