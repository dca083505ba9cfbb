"""Lists everything anew, so that what a watch lost is found, whatever the reason."""

import asyncio
import logging
from collections.abc import Sequence

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import EXTENSIONS, INFERENCE_DEPLOYMENT, ClusterKind, watched_kinds
from stoker_operator.crd_check import CrdCheck
from stoker_operator.errors import ClusterError
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.operator_metrics import MANAGED
from stoker_operator.progress import Progress
from stoker_operator.store import Key, Store
from stoker_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

FIRST_SECONDS = 5.0
"""Until the second list: what is deleted between the first one and the beginning of the watches is told by neither."""


class Relist:
    """`namespaces` empty means the cluster."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], store: Store, queue: WorkQueue[Key], progress: Progress) -> None:
        self._cluster = cluster
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._store = store
        self._queue = queue
        self._progress = progress
        self.crd = CrdCheck(cluster)
        self.extensions: frozenset[ClusterKind] = frozenset()
        """Which of EXTENSIONS the API server knows."""

    async def once(self) -> None:
        """Takes over what there is, and makes every InferenceDeployment due. Raises ClusterError."""
        self.extensions = frozenset([kind for kind in EXTENSIONS if await self._cluster.serves(kind)])
        self._forget_unknown()
        await self.crd.look()
        missed: set[Key] = set()
        for kind in watched_kinds(self.extensions):
            for namespace in self._namespaces:
                missed.update(await self._list(kind, namespace))
        self._progress.seen()
        MANAGED.set(self._store.num_keys)
        for key in {*missed, *self._store.keys()}:
            self._queue.add(key)

    async def forever(self, period: float) -> None:
        """A list that fails is made again after the period: the watches go on meanwhile."""
        pause = min(period, FIRST_SECONDS)
        while True:
            await asyncio.sleep(pause)
            pause = period
            try:
                await self.once()
            except ClusterError as error:
                logger.warning("Cannot list the cluster's objects; trying again in %g s: %s", period, error)

    def _forget_unknown(self) -> None:
        """A definition that is gone has taken its objects along."""
        for kind in EXTENSIONS:
            if kind not in self.extensions:
                self._store.forget_kind(kind.kind)

    async def _list(self, kind: ClusterKind, namespace: str | None) -> list[Key]:
        label = "" if kind is INFERENCE_DEPLOYMENT else INFERENCE_DEPLOYMENT_LABEL
        listed = await self._cluster.list(kind, namespace, label=label)
        return list(self._store.replace(kind.kind, namespace, listed.items, listed.version))
