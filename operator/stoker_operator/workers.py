"""The workers: keys from the queue, one reconciliation each, and what fails again after a while."""

import asyncio
import logging
import time

from stoker_operator.errors import ApiError, ClusterError, ContestedError
from stoker_operator.operator_log import working_on
from stoker_operator.operator_metrics import QUEUE_AGE, QUEUE_DEPTH, RECONCILE_DURATION, RECONCILES
from stoker_operator.progress import Progress
from stoker_operator.reconcile import Reconciler
from stoker_operator.store import Key
from stoker_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class Workers:
    """Nothing that one InferenceDeployment does ends them."""

    def __init__(self, reconciler: Reconciler, queue: WorkQueue[Key], progress: Progress) -> None:
        self._reconciler = reconciler
        self._queue = queue
        self._progress = progress

    async def work(self) -> None:
        """One worker, for ever."""
        while True:
            key = await self._queue.get()
            working_on.set("/".join(key))
            started = time.monotonic()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)
                self._progress.done()
                RECONCILE_DURATION.observe(time.monotonic() - started)

    async def tick(self) -> None:
        """Tells once a second that the event loop runs, and how far the work is behind."""
        while True:
            now = asyncio.get_running_loop().time()
            age = now - (self._queue.oldest_since or now)
            self._progress.tick(age, now - (self._queue.active_since or now))
            QUEUE_DEPTH.set(self._queue.depth)
            QUEUE_AGE.set(age)
            await asyncio.sleep(TICK_SECONDS)

    async def _reconcile(self, key: Key) -> None:
        try:
            again_after = await self._reconciler.reconcile(key)
        except ClusterError as error:
            RECONCILES.labels(result=_reason(error)).inc()
            delay = self._queue.retry(key, at_least=error.retry_after or 0.0)
            logger.warning("Trying again in %.1f s: %s", delay, error)
        except Exception:  # a bug that one InferenceDeployment meets must not be the others' trouble
            RECONCILES.labels(result="Bug").inc()
            delay = self._queue.retry(key)
            logger.exception("Cannot reconcile; trying again in %.1f s", delay)
        else:
            RECONCILES.labels(result="Succeeded").inc()
            self._queue.succeeded(key)
            if again_after is not None:
                self._queue.add_after(key, again_after)


def _reason(error: ClusterError) -> str:
    """The API server's own reason; a few words in all, for it labels a metric."""
    if isinstance(error, ApiError):
        return error.reason or str(error.status)
    return "Contested" if isinstance(error, ContestedError) else "Unreachable"
