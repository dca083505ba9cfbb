"""The leader's work: everything wired together, until it is cancelled."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import kopf

from stoker_engine.config import seconds
from stoker_operator.apply import Applier
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import watched_kinds
from stoker_operator.cluster_view import ViewReader
from stoker_operator.condition_gauge import ConditionGauge
from stoker_operator.config import OperatorConfig
from stoker_operator.errors import ClusterError
from stoker_operator.event_poster import EventPoster
from stoker_operator.observe import Observer
from stoker_operator.pod_reports import PodReporter, pod_client
from stoker_operator.pod_retry import PodRetrier
from stoker_operator.progress import Phase, Progress
from stoker_operator.reconcile import Parts, Reconciler
from stoker_operator.relist import Relist
from stoker_operator.render import Renderer, defaults_of
from stoker_operator.scale_in import PodPricer
from stoker_operator.status_writer import StatusWriter
from stoker_operator.store import Key, Store
from stoker_operator.watch_feed import WatchFeed
from stoker_operator.watches import watch_registry, watch_settings
from stoker_operator.work_queue import WorkQueue
from stoker_operator.workers import Workers

KOPF_WATCHERS = "multidimensional multitasker"
"""kopf's own name for the task."""

STOP_SECONDS = 3.0
"""What kopf gets to close its watches."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`take_signals` is called when kopf has just put its own handlers of signals in place of ours."""

    config: OperatorConfig
    cluster: Cluster
    identity: str
    progress: Progress
    take_signals: Callable[[], None]

    async def run(self) -> None:
        """Never returns. Raises ClusterError when watching is over, whatever ended it; the process starts anew."""
        config, store, queue = self.config, Store(), WorkQueue[Key]()
        relist = Relist(self.cluster, config.namespaces, store, queue, self.progress)
        await relist.once()
        self.progress.phase = Phase.LEADING
        async with pod_client() as pods:
            parts = self._parts(store, relist, PodReporter(pods))
            workers = Workers(Reconciler(store, parts), queue, self.progress)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(workers.tick())
                    tasks.create_task(relist.forever(seconds(config.resync)))
                    for _ in range(config.workers):
                        tasks.create_task(workers.work())
                    tasks.create_task(self._watch(WatchFeed(store, queue, self.progress), relist))
            finally:
                queue.close()

    def _parts(self, store: Store, relist: Relist, reporter: PodReporter) -> Parts:
        views = ViewReader(self.cluster, store, defaults_of(self.config))
        return Parts(
            renderer=Renderer(self.config, self.cluster.namespace, views, relist),
            applier=Applier(self.cluster, store, PodPricer(self.cluster, store, reporter)),
            observer=Observer(self.cluster, store, reporter, relist.crd),
            gauge=ConditionGauge(),
            status_writer=StatusWriter(self.cluster, store),
            events=EventPoster(self.cluster, self.identity),
            retrier=PodRetrier(self.cluster, store),
        )

    async def _watch(self, feed: WatchFeed, relist: Relist) -> None:
        kinds = watched_kinds(relist.extensions)
        stopping, others = asyncio.Event(), asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=watch_registry(kinds, feed, self.cluster.configuration),
            settings=watch_settings(kinds),
            standalone=True,
            clusterwide=not self.config.namespaces,
            namespaces=self.config.namespaces,
            stop_flag=stopping,
        )
        # Before anything else can run: a signal in between would be kopf's, which does not end us.
        self.take_signals()
        watching = asyncio.create_task(kopf.run_tasks(tasks, ignored=others))
        try:
            ended, _ = await asyncio.wait([watching, *_kopf_watchers()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.set()
            await asyncio.wait([watching], timeout=STOP_SECONDS)
            watching.cancel()
        error = next(iter(ended)).exception()
        raise ClusterError(f"watching the cluster failed: {error!r}") from error


def _kopf_watchers() -> list[asyncio.Task[None]]:
    """kopf's task that keeps the watches. When one of them fails, this one ends at once, and kopf itself may never: it waits for the others."""
    return [task for task in asyncio.all_tasks() if task.get_name() == KOPF_WATCHERS]
