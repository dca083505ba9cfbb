"""The life of the api process: sockets, tokenizer, engine client, HTTP, and its end, told in one JSON line."""

import asyncio
import gc
import logging
import socket
import sys
from contextlib import closing

import uvloop

from stoker_engine.config import seconds
from stoker_engine.errors import ConfigError, EngineError, ModelLoadError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.model_files import resolve_model
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_engine.tokenizer import load_tokenizer
from stoker_gateway.api.app import create_app
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.drain import Drain, DrainReport
from stoker_gateway.api.http_server import listen, make_server
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.state import ApiState, make_state, served_names
from stoker_gateway.api.stop_requests import watch_stop_requests

logger = logging.getLogger(__name__)


def run(config: ApiConfig) -> ExitCode:
    """Serves until told to stop. An error that ends the process is one line on stderr and the termination message's lastError."""
    try:
        with closing(listen(config.host, config.port)) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            message = runner.run(_serve(config, listener))
    except EngineError as error:
        code, reason = _describe_failure(error)
        return _fail(config, code, reason, str(error))
    except Exception as error:
        logger.critical("the api failed", exc_info=error)
        return _fail(config, ExitCode.FAILED, "Failed", f"{type(error).__name__}: {error}")
    write_termination_message(config.termination_message_path, message)
    return ExitCode.OK


async def _serve(config: ApiConfig, listener: socket.socket) -> TerminationMessage:
    drain = Drain(seconds(config.lifecycle.drain_timeout))
    watch_stop_requests(config, drain)
    tokenizer = await asyncio.to_thread(lambda: load_tokenizer(resolve_model(config.model.uri)))
    metrics = Metrics(served_names(config.model)[0])
    engine = AsyncLLM(ClientConfig(socket_dir=config.socket_dir), tokenizer, [metrics])
    await engine.start()
    try:
        state = make_state(config, engine, tokenizer, metrics, drain)
        return _message(state, await _serve_until_drained(state, listener))
    finally:
        await engine.shutdown()


async def _serve_until_drained(state: ApiState, listener: socket.socket) -> DrainReport:
    server = make_server(create_app(state))
    host, port = listener.getsockname()[:2]
    logger.info("serving %s on http://%s:%d", ", ".join(state.model_names), host, port)
    # What start-up made lives as long as the api: keep the collector from walking it in every full collection.
    gc.collect()
    gc.freeze()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        report = await state.drain.run(state.engine.abort_all)
        server.should_exit = True
    return report


def _message(state: ApiState, report: DrainReport) -> TerminationMessage:
    status = state.engine.status
    return TerminationMessage(
        reason="Aborted" if report.aborted else "Drained",
        phase="waiting_for_engine" if status.phase is None else status.phase.value,
        last_error=status.message,
        in_flight_at_start=report.in_flight_at_start,
        completed=report.completed,
        aborted=report.aborted,
        seconds=round(report.seconds, 3),
    )


def _fail(config: ApiConfig, code: ExitCode, reason: str, last_error: str) -> ExitCode:
    sys.stderr.write(f"stoker-api: {last_error}\n")
    write_termination_message(config.termination_message_path, TerminationMessage(reason=reason, phase="starting", last_error=last_error))
    return code


def _describe_failure(error: EngineError) -> tuple[ExitCode, str]:
    if isinstance(error, ConfigError):
        return ExitCode.BAD_CONFIG, "BadConfig"
    if isinstance(error, ModelLoadError):
        return ExitCode.MODEL_LOAD_FAILED, "ModelLoadFailed"
    return ExitCode.FAILED, "Failed"
