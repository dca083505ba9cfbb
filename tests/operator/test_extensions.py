"""The operator's own parts against a small API server over a real socket, whose definitions come and go."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from stoker_operator.apply import Applier
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import CHILDREN, EVENT, EXTENSIONS, HTTP_ROUTE, INFERENCE_DEPLOYMENT, INFERENCE_POOL, OBSERVED, POD_MONITOR, ClusterKind
from stoker_operator.cluster_view import ViewReader
from stoker_operator.condition_gauge import ConditionGauge
from stoker_operator.config import OperatorConfig
from stoker_operator.event_poster import EventPoster
from stoker_operator.kube_object import KubeObject, condition
from stoker_operator.observe import Observer
from stoker_operator.pod_reports import PodReporter, pod_client
from stoker_operator.pod_retry import PodRetrier
from stoker_operator.progress import Progress
from stoker_operator.reconcile import Parts, Reconciler
from stoker_operator.relist import Relist
from stoker_operator.render import Renderer, defaults_of
from stoker_operator.scale_in import PodPricer
from stoker_operator.status_writer import StatusWriter
from stoker_operator.store import Key, Store
from stoker_operator.work_queue import WorkQueue

KEY = ("team", "demo")
WANTED: dict[str, Any] = {"httpRoute": {"parentRefs": [{"name": "public"}]}, "inferencePool": {"endpointPickerRef": {"name": "picker"}}}
CORE = (INFERENCE_DEPLOYMENT, *(kind for kind in CHILDREN if kind not in EXTENSIONS), *OBSERVED, EVENT)
Answer = tuple[int, dict[str, Any]]
GONE: Answer = (404, {"kind": "Status", "reason": "NotFound", "message": "not found"})


@dataclass
class LocalApiServer:
    """Objects of the kinds that it knows; an apply replaces. `refused`: what it was asked of extensions that it does not know, discovery apart."""

    known: set[ClusterKind] = field(default_factory=lambda: set(CORE))
    objects: dict[ClusterKind, dict[tuple[str, str], KubeObject]] = field(default_factory=lambda: defaultdict(dict))
    writes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    forbidden: set[ClusterKind] = field(default_factory=set)
    version: int = 10

    def install(self, *kinds: ClusterKind) -> None:
        self.known.update(kinds)

    def uninstall(self, *kinds: ClusterKind) -> None:
        """A definition takes its objects along."""
        for kind in kinds:
            self.known.discard(kind)
            self.objects.pop(kind, None)

    def kinds_of(self, key: Key) -> set[str]:
        """Of the extensions' objects of that name."""
        return {kind.kind for kind in EXTENSIONS if key in self.objects[kind]}

    def put(self, kind: ClusterKind, obj: KubeObject) -> KubeObject:
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"} | obj["metadata"]
        obj = obj | {"metadata": metadata | {"resourceVersion": str(self.version)}}
        self.objects[kind][metadata["namespace"], metadata["name"]] = obj
        return obj

    async def handle(self, request: web.Request) -> web.Response:
        status, body = self._answer(request, await request.json() if request.can_read_body else {})
        return web.json_response(body, status=status)

    def _answer(self, request: web.Request, body: Any) -> Answer:
        for kind in self.known:
            if request.path == f"/apis/{kind.group}/{kind.version}":
                return 200, {"resources": [{"name": each.plural} for each in self.known if each.api_version == kind.api_version]}
            if kind in self.forbidden and request.path.startswith(kind.path(KEY[0])):
                return 403, {"kind": "Status", "reason": "Forbidden", "message": "not yours"}
            if request.path == kind.path(KEY[0]):
                return self._of_all(request.method, kind, body)
            if request.path in (kind.path(*KEY), f"{kind.path(*KEY)}/status"):
                return self._of_one(request.method, kind, body)
        if any(request.path.startswith(kind.path(KEY[0])) for kind in EXTENSIONS):
            self.refused.append(f"{request.method} {request.path}")
        return GONE

    def _of_all(self, method: str, kind: ClusterKind, body: Any) -> Answer:
        if method == "POST":
            return 201, self.put(kind, body)
        return 200, {"items": list(self.objects[kind].values()), "metadata": {"resourceVersion": str(self.version)}}

    def _of_one(self, method: str, kind: ClusterKind, body: Any) -> Answer:
        live = self.objects[kind].get(KEY)
        if method == "PATCH":
            self.writes.append(f"apply {kind.kind}")
            changed = {**(live or {}), **body, "metadata": {**(live or {}).get("metadata", {}), **body["metadata"]}}
            return 200, self.put(kind, changed)
        if live is None:
            return GONE
        if method == "DELETE":
            self.writes.append(f"delete {kind.kind}")
            del self.objects[kind][KEY]
        return 200, live


class Operator:
    """The leader's parts but for the watches: a list, and a look at what it found."""

    def __init__(self, server: LocalApiServer, cluster: Cluster, reporter: PodReporter) -> None:
        self.server = server
        self._queue = WorkQueue[Key]()
        store, config = Store(), OperatorConfig()
        self.relist = Relist(cluster, (KEY[0],), store, self._queue, Progress())
        parts = Parts(
            renderer=Renderer(config, "stoker-system", ViewReader(cluster, store, defaults_of(config)), self.relist),
            applier=Applier(cluster, store, PodPricer(cluster, store, reporter)),
            observer=Observer(cluster, store, reporter, self.relist.crd),
            gauge=ConditionGauge(),
            status_writer=StatusWriter(cluster, store),
            events=EventPoster(cluster, "test"),
            retrier=PodRetrier(cluster, store),
        )
        self._reconciler = Reconciler(store, parts)

    async def resync(self) -> None:
        await self.relist.once()
        await self._reconciler.reconcile(KEY)

    def want(self, gateway_api: dict[str, Any]) -> None:
        manifest = {"apiVersion": INFERENCE_DEPLOYMENT.api_version, "kind": INFERENCE_DEPLOYMENT.kind, "metadata": {"namespace": KEY[0], "name": KEY[1]}}
        live = self.server.objects[INFERENCE_DEPLOYMENT].get(KEY, manifest)
        self.server.put(INFERENCE_DEPLOYMENT, {**live, "spec": {"model": {"uri": "file:///m"}, "replicas": 0, "gatewayApi": gateway_api}})

    @property
    def accepted(self) -> tuple[str, str, str]:
        found = condition(self.server.objects[INFERENCE_DEPLOYMENT][KEY], "SpecAccepted") or {}
        return found["status"], found["reason"], found["message"]


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    server = LocalApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with ApiClient(configuration=configuration) as client, pod_client() as pods:
        yield Operator(server, Cluster(client, "stoker-system"), PodReporter(pods))
    await runner.cleanup()


@pytest.mark.parametrize("wanted", [{}, WANTED])
async def test_a_cluster_without_the_definitions_gets_everything_else_and_is_not_asked_for_them(operator: Operator, wanted: dict[str, Any]) -> None:
    operator.want(wanted)
    await operator.resync()
    assert all(KEY in operator.server.objects[kind] for kind in CHILDREN if kind not in EXTENSIONS)
    assert not operator.server.refused


async def test_what_cannot_be_made_is_told_and_made_when_its_definition_comes(operator: Operator) -> None:
    operator.want(WANTED)
    await operator.resync()
    status, reason, message = operator.accepted
    assert (status, reason) == ("True", "UnknownKind")
    assert "InferencePool (inference.networking.k8s.io/v1), HTTPRoute (gateway.networking.k8s.io/v1)" in message
    operator.server.install(HTTP_ROUTE)
    await operator.resync()
    assert operator.server.kinds_of(KEY) == {"HTTPRoute"}
    assert operator.accepted[1] == "UnknownKind"
    operator.server.install(INFERENCE_POOL, POD_MONITOR)
    await operator.resync()
    assert operator.server.kinds_of(KEY) == {"HTTPRoute", "InferencePool", "PodMonitor"}
    assert operator.accepted[:2] == ("True", "Accepted")
    uid = operator.server.objects[INFERENCE_DEPLOYMENT][KEY]["metadata"]["uid"]
    assert {operator.server.objects[kind][KEY]["metadata"]["ownerReferences"][0]["uid"] for kind in EXTENSIONS} == {uid}


async def test_what_is_no_longer_asked_for_goes_and_nothing_else_is_written(operator: Operator) -> None:
    operator.server.install(*EXTENSIONS)
    operator.want(WANTED)
    await operator.resync()
    operator.want({"httpRoute": WANTED["httpRoute"]})
    operator.server.writes.clear()
    await operator.resync()
    assert operator.server.writes == ["delete InferencePool"]
    operator.want({})
    await operator.resync()
    assert operator.server.writes == ["delete InferencePool", "delete HTTPRoute"]
    await operator.resync()
    assert operator.server.writes == ["delete InferencePool", "delete HTTPRoute"]
    assert operator.server.kinds_of(KEY) == {"PodMonitor"}


async def test_a_definition_that_is_taken_away_stops_nothing_and_one_that_comes_back_is_served_again(operator: Operator) -> None:
    operator.server.install(*EXTENSIONS)
    operator.want(WANTED)
    await operator.resync()
    operator.server.uninstall(HTTP_ROUTE)
    operator.server.writes.clear()
    await operator.resync()
    assert (operator.server.writes, operator.server.refused) == (["apply InferenceDeployment"], [])
    assert operator.accepted[1] == "UnknownKind"
    operator.server.install(HTTP_ROUTE)
    await operator.resync()
    assert "HTTPRoute" in operator.server.kinds_of(KEY)


async def test_a_kind_that_the_operator_may_not_list_is_told_and_made_when_it_may(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    operator.server.install(*EXTENSIONS)
    operator.server.forbidden.add(HTTP_ROUTE)
    operator.want(WANTED)
    await operator.resync()
    await operator.resync()
    assert operator.server.kinds_of(KEY) == {"InferencePool", "PodMonitor"}
    assert operator.accepted[:2] == ("True", "UnknownKind")
    assert caplog.text.count("No HTTPRoute will be made: not yours") == 1
    operator.server.forbidden.clear()
    await operator.resync()
    assert operator.server.kinds_of(KEY) == {"HTTPRoute", "InferencePool", "PodMonitor"}
