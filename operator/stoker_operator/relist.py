"""Lists everything anew, so that what a watch lost is found, whatever the reason."""

import asyncio
import logging
from collections.abc import Sequence

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import EXTENSIONS, INFERENCE_DEPLOYMENT, ClusterKind, watched_kinds
from stoker_operator.crd_check import CrdCheck
from stoker_operator.errors import ApiError, ClusterError
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.operator_metrics import MANAGED
from stoker_operator.progress import Progress
from stoker_operator.store import Key, Store
from stoker_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

FORBIDDEN = 403

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
        """Which of EXTENSIONS the API server knows, and we may list."""
        self._forbidden: set[ClusterKind] = set()

    async def once(self) -> None:
        """Takes over what there is, and makes every InferenceDeployment due. Raises ClusterError."""
        await self.crd.look()
        missed: set[Key] = set()
        for kind in watched_kinds(()):
            missed.update(await self._list(kind))
        self.extensions = frozenset([kind for kind in EXTENSIONS if await self._take_over(kind, missed)])
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

    async def _take_over(self, kind: ClusterKind, missed: set[Key]) -> bool:
        """Lists one of EXTENSIONS, if it can be. A definition that is gone has taken its objects along; an operator may be newer than its roles."""
        if not await self._cluster.serves(kind):
            self._store.forget_kind(kind.kind)
            return False
        try:
            missed.update(await self._list(kind))
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            if kind not in self._forbidden:
                logger.warning("No %s will be made: %s; bring the operator's roles up to date", kind.kind, error.message)
            self._forbidden.add(kind)
            self._store.forget_kind(kind.kind)
            return False
        self._forbidden.discard(kind)
        return True

    async def _list(self, kind: ClusterKind) -> set[Key]:
        """Whose objects were other than thought."""
        label = "" if kind is INFERENCE_DEPLOYMENT else INFERENCE_DEPLOYMENT_LABEL
        missed: set[Key] = set()
        for namespace in self._namespaces:
            listed = await self._cluster.list(kind, namespace, label=label)
            missed.update(self._store.replace(kind.kind, namespace, listed.items, listed.version))
        return missed
