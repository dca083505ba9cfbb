"""The life of the api process: sockets, tokenizer, engine client, HTTP, and its end, told in one JSON line."""

import asyncio
import logging
import socket
import sys
from contextlib import closing

import uvloop

from stoker_engine.config import seconds
from stoker_engine.errors import ConfigError, EngineDeadError, EngineError, EngineGenerateError, EngineNotReadyError, ModelLoadError, StartupTimeoutError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.frontend.admission import QueueLimits
from stoker_engine.frontend.async_llm import AsyncLLM
from stoker_engine.frontend.clients.base import ClientConfig
from stoker_engine.supervisor_pipe import check_supervisor_fd
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_engine.tokenizer import load_tokenizer
from stoker_gateway.api.app import ApiApp
from stoker_gateway.api.chat_format import apply_chat_template
from stoker_gateway.api.config import ApiConfig
from stoker_gateway.api.edge import Edge, make_edge
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.api.model_source import find_model
from stoker_gateway.api.state import ApiState, make_state, served_names
from stoker_gateway.http.drain import Drain, DrainReport
from stoker_gateway.http.garbage import collect_rarely
from stoker_gateway.http.open_files import raise_open_files_limit
from stoker_gateway.http.server import Server, listen, make_server
from stoker_gateway.http.stop_requests import StopRequests

logger = logging.getLogger(__name__)


def run(config: ApiConfig) -> ExitCode:
    """Serves until told to stop. An error that ends the process is one line on stderr and the termination message's lastError."""
    try:
        if config.supervisor_fd is not None:
            check_supervisor_fd(config.supervisor_fd)
        raise_open_files_limit()
        with closing(listen(config.host, config.port)) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code, message = runner.run(_serve(config, listener))
    except EngineError as error:
        code, reason = _describe_failure(error)
        return _fail(config, code, reason, str(error))
    except Exception as error:
        logger.critical("the api failed", exc_info=error)
        return _fail(config, ExitCode.FAILED, "Failed", f"{type(error).__name__}: {error}")
    write_termination_message(config.termination_message_path, message)
    return code


async def _serve(config: ApiConfig, listener: socket.socket) -> tuple[ExitCode, TerminationMessage]:
    edge = make_edge(config)
    drain = Drain(seconds(config.lifecycle.drain_timeout))
    StopRequests(drain, drain, config.termination_message_path).watch(config.supervisor_fd)
    path = await find_model(config, drain)
    if path is None:
        return ExitCode.OK, TerminationMessage(reason="Aborted", phase="downloading")
    tokenizer = await asyncio.to_thread(load_tokenizer, path)
    apply_chat_template(config, tokenizer)
    metrics = Metrics(served_names(config.model)[0])
    client = ClientConfig(socket_dir=config.socket_dir, hang_seconds=seconds(config.lifecycle.engine_hang_timeout))
    limits = QueueLimits(config.max_queued_requests, config.max_queued_prefill_tokens)
    timeout = None if config.request_timeout is None else seconds(config.request_timeout)
    engine = AsyncLLM(client, tokenizer, [metrics], limits, timeout)
    await engine.start()
    try:
        state = make_state(config, engine, tokenizer, metrics, drain)
        end = await _serve_until_end(state, edge, listener)
        return (ExitCode.OK, _drained(state, end)) if isinstance(end, DrainReport) else (ExitCode.FAILED, _failed(state, end))
    finally:
        await engine.shutdown()
        await asyncio.to_thread(edge.close)


async def _serve_until_end(state: ApiState, edge: Edge, listener: socket.socket) -> DrainReport | BaseException:
    """Serves until drained or until the engine client fails, then closes the connections."""
    server = make_server(edge.wrap(ApiApp(state, edge.api_keys), state.metrics, state.drain))
    host, port = listener.getsockname()[:2]
    logger.info("serving %s on http://%s:%d", ", ".join(state.model_names), host, port)
    collect_rarely()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        moving = tasks.create_task(_move_clients(server, state.drain))
        end = await _drain_or_failure(state)
        moving.cancel()
        server.should_exit = True
    return end


async def _move_clients(server: Server, drain: Drain) -> None:
    """Away from the connections that they keep: a Service takes new ones to a replica that does not drain."""
    await drain.requested()
    drain.last_answers(server.clients())


async def _drain_or_failure(state: ApiState) -> DrainReport | BaseException:
    """What comes first. A failed client has told its requests already; nothing is left to drain."""
    drained = asyncio.create_task(state.drain.run(lambda: _can_finish(state.engine), state.engine.abort_all))
    failed = asyncio.create_task(state.engine.failure())
    try:
        await asyncio.wait((drained, failed), return_when=asyncio.FIRST_COMPLETED)
        return failed.result() if failed.done() else drained.result()
    finally:
        drained.cancel()
        failed.cancel()


async def _can_finish(engine: AsyncLLM) -> bool:
    """Whether requests in flight may still end by themselves. A pause holds them, and nobody resumes it once the api drains: that is done here."""
    try:
        await engine.control.resume_generation()
    except EngineGenerateError:
        return False  # it sleeps
    except (EngineNotReadyError, EngineDeadError):
        return True  # what runs, if anything, ends with the engine
    return True


def _failed(state: ApiState, error: BaseException) -> TerminationMessage:
    last_error = f"{type(error).__name__}: {error}"
    sys.stderr.write(f"stoker-api: the engine client failed: {last_error}\n")
    return TerminationMessage(reason="Failed", phase=_phase(state), last_error=last_error)


def _phase(state: ApiState) -> str:
    phase = state.engine.status.phase
    return "waiting_for_engine" if phase is None else phase.value


def _drained(state: ApiState, report: DrainReport) -> TerminationMessage:
    return TerminationMessage(
        reason="Aborted" if report.aborted else "Drained",
        phase=_phase(state),
        last_error=state.engine.status.message,
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
        return ExitCode.MODEL_LOAD_FAILED, error.reason
    if isinstance(error, StartupTimeoutError):
        return ExitCode.STARTUP_TIMEOUT, "StartupTimeout"
    return ExitCode.FAILED, "Failed"
