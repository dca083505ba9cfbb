"""The way back of a replica that was ejected: it is asked whether it is ready, and gets requests again when it says so."""

import asyncio
import functools
import logging
from collections.abc import Iterator

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.replica_poll import ReplicaPoll
from stoker_gateway.router.replica_probe import READINESS_PATH, ProbeAnswer

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


async def readmit_replicas(fleet: Fleet) -> None:
    """For ever."""

    def due(now: float) -> Iterator[Endpoint]:
        for model in fleet.models:
            yield from (endpoint for endpoint in model.endpoints if endpoint.is_ready and endpoint.health.must_be_checked(now))

    await ReplicaPoll(READINESS_PATH, CHECK_SECONDS, due, functools.partial(_heard, fleet)).run()


def _heard(fleet: Fleet, endpoint: Endpoint, answer: ProbeAnswer | None) -> None:
    now = asyncio.get_running_loop().time()
    if not endpoint.health.is_ejected(now):
        return
    if answer is not None and answer.status == 200:
        logger.info("%s says that it is ready and gets requests again", endpoint.address)
        fleet.readmit(endpoint)
    else:
        endpoint.health.postpone(now)
