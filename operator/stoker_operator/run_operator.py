"""`stoker operator`: connect, wait for the CustomResourceDefinition and the Lease, then work until told to stop."""

import asyncio
import contextlib
import functools
import logging
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

from stoker_engine.config import seconds
from stoker_engine.exit_codes import ExitCode
from stoker_engine.version import __version__
from stoker_operator.cluster import Cluster, connect
from stoker_operator.config import OperatorConfig
from stoker_operator.crd_check import wait_for_crd
from stoker_operator.errors import OperatorError
from stoker_operator.leadership import Leadership
from stoker_operator.nesting import take_deep_objects
from stoker_operator.operate import Operation
from stoker_operator.operator_health import HealthServer
from stoker_operator.operator_metrics import LEADER
from stoker_operator.progress import Phase, Progress

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
TICK_SECONDS = 1.0


def run_operator(config: OperatorConfig) -> ExitCode:
    """OK when told to stop, FAILED for a failure, a lost Lease among them: the kubelet starts the operator anew."""
    take_deep_objects()
    progress = Progress()
    code = ExitCode.OK
    try:
        with HealthServer(config.health_host, config.health_port, progress, seconds(config.resync)):
            asyncio.run(_run(config, progress))
    except* OperatorError as group:
        for error in _leaves(group):
            logger.error("%s", error)
        code = ExitCode.FAILED
    return code


async def _run(config: OperatorConfig, progress: Progress) -> None:
    stop = asyncio.Event()
    take_signals = functools.partial(_set_on_signals, stop)
    take_signals()
    # The Lease has a connection of its own, which no other call can hold up.
    async with connect() as cluster, connect() as lease_cluster:
        logger.info("stoker operator %s on %s, watching %s", __version__, cluster.configuration.host, ", ".join(config.namespaces) or "all namespaces")
        leadership = Leadership(lease_cluster, config.lease_namespace or cluster.namespace, config.lease_name)
        operation = Operation(config, cluster, leadership.identity, progress, take_signals)
        try:
            await _until(stop, _lead(operation, leadership))
        finally:
            progress.phase = Phase.STOPPING
            LEADER.set(0)
            await leadership.release()
    logger.info("Stopped")


def _set_on_signals(stop: asyncio.Event) -> None:
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _lead(operation: Operation, leadership: Leadership) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_tick(operation.progress))
        await _prepare(operation.cluster, operation.progress)
        await leadership.acquire()
        operation.progress.phase = Phase.LISTING
        LEADER.set(1)
        tasks.create_task(leadership.hold())
        await operation.run()


async def _prepare(cluster: Cluster, progress: Progress) -> None:
    await wait_for_crd(cluster, progress)
    progress.phase = Phase.STANDBY


async def _tick(progress: Progress) -> None:
    """Until there is work, the loop alone can hang."""
    while progress.phase is not Phase.LEADING:
        progress.tick(queue_age=0.0, work_age=0.0)
        await asyncio.sleep(TICK_SECONDS)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """`work` until `stop` is set; raises what it raises before that."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        logger.info("Stopping")
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return
    working.result()


def _leaves(group: BaseExceptionGroup[OperatorError]) -> Iterator[OperatorError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
