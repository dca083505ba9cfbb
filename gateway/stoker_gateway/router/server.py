"""The life of the gateway's process: the fleet's source, HTTP, and its end, told in one JSON line."""

import asyncio
import logging
import socket
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from starlette.types import ASGIApp

from stoker_engine.config import seconds
from stoker_engine.errors import ConfigError, EngineError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.supervisor_pipe import check_supervisor_fd
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_gateway.http.cors import with_cors
from stoker_gateway.http.drain import Drain, DrainReport
from stoker_gateway.http.garbage import collect_rarely
from stoker_gateway.http.open_files import raise_open_files_limit
from stoker_gateway.http.server import listen, make_server
from stoker_gateway.http.stop_requests import StopRequests
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.app import GatewayApp
from stoker_gateway.router.body_memory import BodyMemory
from stoker_gateway.router.client_protocol import ClientProtocol
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.discovery import Discovery
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_page.feed import FleetFeed
from stoker_gateway.router.fleet_page.page import FleetPage
from stoker_gateway.router.gateway_metrics import GatewayMetrics
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.proxy import Proxy
from stoker_gateway.router.upstream_pools import UpstreamPools

if TYPE_CHECKING:
    from stoker_gateway.router.tracing import Tracing

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Life:
    """How far the process has come."""

    fleet: Fleet = field(default_factory=Fleet)
    report: DrainReport | None = None

    @property
    def phase(self) -> str:
        return "serving" if self.fleet.is_synced else "starting"


def run(config: GatewayConfig) -> ExitCode:
    """Serves until told to stop. An error that ends the process is one line on stderr and the termination message's lastError."""
    life = _Life()
    try:
        if config.supervisor_fd is not None:
            check_supervisor_fd(config.supervisor_fd)
        raise_open_files_limit()
        keys = None if config.api_keys_file is None else KeyRing(Path(config.api_keys_file))
        discovery = Discovery(config, keys)
        with closing(listen(config.host, config.port)) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, discovery, keys, listener, life))
    except Exception as error:
        cause = _cause(error)
        if not isinstance(cause, EngineError):
            logger.critical("the gateway failed", exc_info=error)
        return _fail(config, life, cause)
    _tell_end(config, life, "Aborted" if life.report is not None and life.report.aborted else "Drained")
    return ExitCode.OK


async def _serve(config: GatewayConfig, discovery: Discovery, keys: KeyRing | None, listener: socket.socket, life: _Life) -> None:
    tracing = None if config.otlp_endpoint is None else _make_tracing(config.otlp_endpoint)
    lifecycle = Lifecycle(Drain(seconds(config.drain_timeout)), seconds(config.drain_delay))
    StopRequests(lifecycle, lifecycle.drain, config.termination_message_path).watch(config.supervisor_fd)
    fleet = life.fleet
    pools = UpstreamPools()
    fleet.listeners.append(pools.forget)
    admission = Admission(keys)
    if config.static_models:  # a supervisor that stops the gateway stops its replicas, too: those that have gone do not come back
        admission.may_get_replicas = lambda: not lifecycle.is_leaving
    metrics = GatewayMetrics(fleet, admission)
    fleet.listeners += [admission.on_fleet_change, metrics.on_fleet_change]
    proxy = Proxy(fleet, pools, lifecycle.drain, admission, _body_memory(config))
    app = GatewayApp(fleet, proxy, lifecycle, admission, metrics)
    feed = FleetFeed(fleet, admission)
    app.add_page(FleetPage(feed, admission))
    if tracing is not None:
        app.trace(tracing)
    watching_keys = None if keys is None else asyncio.create_task(keys.watch())
    watching = asyncio.create_task(discovery.run(fleet))
    watching.add_done_callback(lambda _: lifecycle.request_abort())
    try:
        app.allow_origins(config.cors_allow_origins)
        life.report = await _serve_until_end(with_cors(app, config.cors_allow_origins), proxy, lifecycle, listener, feed)
    finally:
        pools.close()
        if watching_keys is not None:
            watching_keys.cancel()
        if not watching.done():
            watching.cancel()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
    if not watching.cancelled() and watching.done():
        watching.result()  # discovery never ends by itself


def _make_tracing(endpoint: str) -> "Tracing":
    """Imported here: whoever wants no traces need not have OpenTelemetry."""
    try:
        from stoker_gateway.router.tracing import Tracing
    except ImportError as error:
        raise ConfigError(f"--otlp-endpoint: {error}; install stoker[otel], or leave it out") from error
    return Tracing(endpoint)


def _body_memory(config: GatewayConfig) -> BodyMemory:
    try:
        return BodyMemory(config.max_body_bytes, config.max_body_memory)
    except ValueError as error:
        raise ConfigError(f"--max-body-memory: {config.max_body_memory}: {error}") from None


async def _serve_until_end(app: ASGIApp, proxy: Proxy, lifecycle: Lifecycle, listener: socket.socket, feed: FleetFeed) -> DrainReport:
    """Serves until drained, then closes the connections."""
    server = make_server(app, ClientProtocol)
    lifecycle.on_drain = lambda: lifecycle.drain.last_answers(server.clients())
    host, port = listener.getsockname()[:2]
    logger.info("serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    collect_rarely()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        report = await lifecycle.drain.run(_can_finish, proxy.abort_all)
        feed.close()
        server.should_exit = True
    return report


async def _can_finish() -> bool:
    """Replicas go on, whatever the gateway does."""
    return True


def _tell_end(config: GatewayConfig, life: _Life, reason: str, last_error: str = "") -> None:
    report = life.report or DrainReport(0, 0, 0.0)
    message = TerminationMessage(
        reason=reason,
        phase=life.phase,
        last_error=last_error,
        in_flight_at_start=report.in_flight_at_start,
        completed=report.completed,
        aborted=report.aborted,
        seconds=round(report.seconds, 3),
    )
    write_termination_message(config.termination_message_path, message)


def _fail(config: GatewayConfig, life: _Life, cause: BaseException) -> ExitCode:
    words = str(cause) if isinstance(cause, EngineError) else f"{type(cause).__name__}: {cause}"
    sys.stderr.write(f"stoker-gateway: {words}\n")
    is_config = isinstance(cause, ConfigError)
    _tell_end(config, life, "BadConfig" if is_config else "Failed", words)
    return ExitCode.BAD_CONFIG if is_config else ExitCode.FAILED


def _cause(error: BaseException) -> BaseException:
    """Of a group, the first that failed."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
