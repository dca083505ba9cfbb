"""The life of the gateway's process: the fleet's source, HTTP, and its end, told in one JSON line."""

import asyncio
import gc
import logging
import socket
import sys
from contextlib import closing
from pathlib import Path

import uvloop
from starlette.types import ASGIApp

from stoker_engine.config import seconds
from stoker_engine.errors import ConfigError, EngineError
from stoker_engine.exit_codes import ExitCode
from stoker_engine.supervisor_pipe import check_supervisor_fd
from stoker_engine.termination import TerminationMessage, write_termination_message
from stoker_gateway.http.drain import Drain, DrainReport
from stoker_gateway.http.open_files import raise_open_files_limit
from stoker_gateway.http.server import Server, listen, make_server
from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.app import GatewayApp
from stoker_gateway.router.body_memory import BodyMemory
from stoker_gateway.router.client_protocol import ClientProtocol
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.discovery import Discovery
from stoker_gateway.router.edge import surround
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.fleet_page.feed import FleetFeed
from stoker_gateway.router.fleet_page.page import FleetPage
from stoker_gateway.router.gateway_metrics import GatewayMetrics
from stoker_gateway.router.lifecycle import Lifecycle
from stoker_gateway.router.proxy import Proxy
from stoker_gateway.router.stop_requests import watch_stop_requests
from stoker_gateway.router.upstream_pools import UpstreamPools

logger = logging.getLogger(__name__)


def run(config: GatewayConfig) -> ExitCode:
    """Serves until told to stop. An error that ends the process is one line on stderr and the termination message's lastError."""
    try:
        if config.supervisor_fd is not None:
            check_supervisor_fd(config.supervisor_fd)
        raise_open_files_limit()
        keys = None if config.api_keys_file is None else KeyRing(Path(config.api_keys_file))
        discovery = Discovery(config, keys)
        with closing(listen(config.host, config.port)) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            report = runner.run(_serve(config, discovery, keys, listener))
    except ConfigError as error:
        return _fail(config, ExitCode.BAD_CONFIG, "BadConfig", str(error))
    except EngineError as error:
        return _fail(config, ExitCode.FAILED, "Failed", str(error))
    except Exception as error:
        logger.critical("the gateway failed", exc_info=error)
        return _fail(config, ExitCode.FAILED, "Failed", f"{type(error).__name__}: {error}")
    write_termination_message(config.termination_message_path, _drained(report))
    return ExitCode.OK


async def _serve(config: GatewayConfig, discovery: Discovery, keys: KeyRing | None, listener: socket.socket) -> DrainReport:
    lifecycle = Lifecycle(Drain(seconds(config.drain_timeout)), seconds(config.drain_delay))
    watch_stop_requests(config, lifecycle)
    fleet = Fleet()
    pools = UpstreamPools()
    fleet.listeners.append(pools.forget)
    admission = Admission(keys)
    metrics = GatewayMetrics(fleet, admission)
    fleet.listeners += [admission.on_fleet_change, metrics.on_fleet_change]
    proxy = Proxy(fleet, pools, lifecycle.drain, admission, _body_memory(config))
    app = GatewayApp(fleet, proxy, lifecycle, admission, metrics)
    feed = FleetFeed(fleet, admission)
    app.add_page(FleetPage(feed, admission))
    watching_keys = None if keys is None else asyncio.create_task(keys.watch())
    watching = asyncio.create_task(discovery.run(fleet))
    watching.add_done_callback(lambda _: lifecycle.request_abort())
    try:
        report = await _serve_until_end(surround(app, config.cors_allow_origins), proxy, lifecycle, listener, feed)
    finally:
        pools.close()
        if watching_keys is not None:
            watching_keys.cancel()
        if not watching.done():
            watching.cancel()
    if not watching.cancelled() and watching.done():
        watching.result()  # discovery never ends by itself
    return report


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
    # What start-up made lives as long as the gateway: keep the collector from walking it in every full collection.
    gc.collect()
    gc.freeze()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_serve_connections(server, listener))
        report = await lifecycle.drain.run(_can_finish, proxy.abort_all)
        feed.close()
        server.should_exit = True
    return report


async def _serve_connections(server: Server, listener: socket.socket) -> None:
    await server.serve(sockets=[listener])


async def _can_finish() -> bool:
    """Replicas go on, whatever the gateway does."""
    return True


def _drained(report: DrainReport) -> TerminationMessage:
    return TerminationMessage(
        reason="Aborted" if report.aborted else "Drained",
        phase="serving",
        in_flight_at_start=report.in_flight_at_start,
        completed=report.completed,
        aborted=report.aborted,
        seconds=round(report.seconds, 3),
    )


def _fail(config: GatewayConfig, code: ExitCode, reason: str, last_error: str) -> ExitCode:
    sys.stderr.write(f"stoker-gateway: {last_error}\n")
    write_termination_message(config.termination_message_path, TerminationMessage(reason=reason, phase="starting", last_error=last_error))
    return code
