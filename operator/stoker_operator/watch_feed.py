"""From what is seen of the cluster to keys in the queue: the one place that decides what is news, and for whom."""

from stoker_operator.cluster_kinds import INFERENCE_DEPLOYMENT, POD
from stoker_operator.kube_object import KubeObject
from stoker_operator.operator_metrics import MANAGED
from stoker_operator.progress import Progress
from stoker_operator.store import Key, Store, key_of
from stoker_operator.work_queue import WorkQueue

SETTLE_SECONDS = 0.1
"""Children change in bursts; one look after a burst is enough."""


class WatchFeed:
    """Our own writes come back as events; the store knows them already, so that they are no news."""

    def __init__(self, store: Store, queue: WorkQueue[Key], progress: Progress) -> None:
        self._store = store
        self._queue = queue
        self._progress = progress

    def changed(self, obj: KubeObject) -> None:
        """An object as it is now."""
        self._progress.seen()
        if self._store.put(obj):
            self._enqueue(obj)

    def deleted(self, obj: KubeObject) -> None:
        """An object as it was when it went. How a pod ended is told once more by the next status."""
        self._progress.seen()
        if self._store.remove(obj):
            if obj["kind"] == POD.kind:
                self._store.keep_departed(obj)
            self._enqueue(obj)

    def _enqueue(self, obj: KubeObject) -> None:
        key = key_of(obj)
        if key is None:
            return
        if obj["kind"] == INFERENCE_DEPLOYMENT.kind:
            MANAGED.set(self._store.num_keys)
            self._queue.add(key)
        else:
            self._queue.add_after(key, SETTLE_SECONDS)
