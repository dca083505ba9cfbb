"""Discovery: everything that keeps the fleet true to what there is."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from stoker_engine.config import seconds
from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.load_poll import LoadPoll
from stoker_gateway.router.readmission import readmit_replicas
from stoker_gateway.router.static_model import parse_static_models
from stoker_gateway.router.static_source import StaticSource


class Discovery:
    """Models that flags name, else those of a cluster. Raises ConfigError."""

    def __init__(self, config: GatewayConfig, keys: KeyRing | None) -> None:
        self._keys = keys
        self._keys_secret = config.api_keys_secret
        self._static_models = parse_static_models(config.static_models)
        self._namespaces = config.namespaces
        self._resync_seconds = seconds(config.resync)

    async def run(self, fleet: Fleet) -> None:
        """For ever. Raises ConfigError where there is no cluster."""
        if self._static_models:
            await _run_all(StaticSource(self._static_models).run(fleet.update), *_polls(fleet))
        else:
            await self._follow_cluster(fleet)

    async def _follow_cluster(self, fleet: Fleet) -> None:
        # Importing Kubernetes' client takes a second, and a gateway on a laptop needs none.
        from stoker_gateway.router.cluster.api_server import connect
        from stoker_gateway.router.cluster.key_events import KeyEvents
        from stoker_gateway.router.cluster.kubernetes_source import KubernetesSource
        from stoker_gateway.router.cluster.routable import RoutableWriter

        async with connect() as server:
            source = KubernetesSource(server, self._namespaces, self._resync_seconds)
            writer = RoutableWriter(server, source, fleet)
            work = [source.run(fleet.update), writer.run(), *_polls(fleet)]
            if self._keys is not None and self._keys_secret is not None:
                work.append(KeyEvents(server, self._keys_secret, self._keys).run())
            await _run_all(*work)


def _polls(fleet: Fleet) -> tuple[Coroutine[Any, Any, None], ...]:
    return readmit_replicas(fleet), LoadPoll(fleet).run()


async def _run_all(*work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
