"""KubernetesSource: InferenceDeployments and the EndpointSlices of their Services become views of the fleet."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from stoker_gateway.router.cluster.api_server import ApiServer, Query
from stoker_gateway.router.cluster.mirror import Mirror
from stoker_gateway.router.cluster.names import ENDPOINT_SLICES, INFERENCE_DEPLOYMENT_LABEL, INFERENCE_DEPLOYMENTS
from stoker_gateway.router.cluster.objects import DeploymentObject, SliceObject, read_deployment, read_slice
from stoker_gateway.router.fleet_view import DeploymentView, EndpointView, FleetView

SETTLE_SECONDS = 0.02
"""Changes come in bursts; one view after a burst is enough."""


class KubernetesSource:
    """`namespaces` empty means the cluster. Nothing is told before everything was listed once."""

    def __init__(self, server: ApiServer, namespaces: Sequence[str], resync_seconds: float) -> None:
        places: Sequence[str | None] = namespaces or (None,)
        self._server = server
        self._resync_seconds = resync_seconds
        self._changed = asyncio.Event()
        news = self._changed.set
        self._deployments = [Mirror(Query(INFERENCE_DEPLOYMENTS, place), read_deployment, news) for place in places]
        self._slices = [Mirror(Query(ENDPOINT_SLICES, place, INFERENCE_DEPLOYMENT_LABEL), read_slice, news) for place in places]
        self._mirrors: tuple[Mirror[DeploymentObject] | Mirror[SliceObject], ...] = (*self._deployments, *self._slices)
        self._built: dict[tuple[str, str], _Built] = {}

    @property
    def deployments(self) -> dict[tuple[str, str], DeploymentObject]:
        """By namespace and name, as they are now."""
        return {key: obj for mirror in self._deployments for key, obj in mirror.objects.items()}

    async def run(self, on_view: Callable[[FleetView], None]) -> None:
        """As FleetSource says."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(mirror.run(self._server, self._resync_seconds))
            await self._tell(on_view)

    async def _tell(self, on_view: Callable[[FleetView], None]) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._changed.clear()
            if all(mirror.is_synced for mirror in self._mirrors):
                on_view(self._build())

    def _build(self) -> FleetView:
        slices: dict[tuple[str, str], list[SliceObject]] = defaultdict(list)
        for mirror in self._slices:
            for found in mirror.objects.values():
                slices[found.deployment].append(found)
        self._built = {key: self._build_one(obj, tuple(slices.get(key, ()))) for key, obj in self.deployments.items()}
        return tuple(view for _, _, view in self._built.values())

    def _build_one(self, obj: DeploymentObject, slices: tuple[SliceObject, ...]) -> "_Built":
        """The view of before where nothing changed: there may be thousands, and each change is of one."""
        before = self._built.get(obj.key)
        if before is not None and before[0] is obj and before[1] == slices:
            return before
        return obj, slices, build_view(obj, slices)


_Built = tuple[DeploymentObject, tuple[SliceObject, ...], DeploymentView]


def build_view(obj: DeploymentObject, slices: Sequence[SliceObject]) -> DeploymentView:
    """A pod counts once, also while it moves from one slice to another or has addresses of two families."""
    endpoints: dict[str, EndpointView] = {}
    for found in sorted(slices, key=lambda each: each.order):
        endpoints.update((endpoint.pod, endpoint) for endpoint in found.endpoints)
    namespace, name = obj.key
    return DeploymentView(
        namespace=namespace,
        name=name,
        uid=obj.uid,
        created=obj.created,
        served_names=obj.served_names,
        replicas=obj.replicas,
        traffic=obj.traffic,
        endpoints=tuple(endpoints[pod] for pod in sorted(endpoints)),
    )
