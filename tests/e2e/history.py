"""Every version that an object goes through."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.cluster import Cluster, Manifest, Manifests


class History:
    def __init__(self, cluster: Cluster, kind: str, name: str, namespace: str) -> None:
        self._stopping = threading.Event()
        self._versions: Manifests = [cluster.get(kind, name, namespace)]
        self._thread = threading.Thread(target=self._watch, args=(cluster, kind, name, namespace), name=f"watch-{name}")
        self._thread.start()

    def _watch(self, cluster: Cluster, kind: str, name: str, namespace: str) -> None:
        self._versions.extend(cluster.watch(kind, name, namespace, self._stopping))

    @property
    def versions(self) -> Manifests:
        """Up to now, the oldest first."""
        return list(self._versions)

    @property
    def last(self) -> Manifest:
        return self._versions[-1]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def history(cluster: Cluster, kind: str, name: str, namespace: str) -> Iterator[History]:
    """Complete when the block has ended."""
    kept = History(cluster, kind, name, namespace)
    try:
        yield kept
    finally:
        kept.stop()
