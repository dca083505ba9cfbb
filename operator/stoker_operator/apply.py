"""Desired children → the cluster's. Writes what differs, touches nothing of others, and goes on past a child that the API server refuses."""

import logging
import time
from collections.abc import Iterable, Sequence

from stoker_operator import kube_object
from stoker_operator.changes import changed_fields
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import BY_KIND, DEPLOYMENT, OPTIONAL_CHILDREN
from stoker_operator.contests import Contests
from stoker_operator.errors import ApiError, ContestedError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import DESIRED_ANNOTATION, KIND, RENDERED_BY_ANNOTATION, TEMPLATE_INPUTS_ANNOTATION
from stoker_operator.observed import NAME_CONFLICT, ApplyProblem
from stoker_operator.resources.containment import contains
from stoker_operator.settle import settle
from stoker_operator.store import Key, Store

logger = logging.getLogger(__name__)


class Applier:
    """Raises ClusterError for what may pass: the whole InferenceDeployment is tried again."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._contests = Contests()
        self._taken: set[tuple[str, str, str]] = set()
        """Where objects of others stood when last looked at: nothing is sent there before another look."""

    async def apply_all(self, children: Sequence[KubeObject], uid: str) -> tuple[ApplyProblem, ...]:
        """Makes the children of the InferenceDeployment `uid` as desired: the first one first, for pods need a ServiceAccount, then the others."""
        problems = [await self._apply(children[0], uid), *await settle(self._apply(child, uid) for child in children[1:])]
        return tuple(problem for problem in problems if problem is not None)

    async def _apply(self, child: KubeObject, uid: str) -> ApplyProblem | None:
        try:
            return await self._make(child, uid)
        except ApiError as error:
            if error.passing:
                raise
            kind = kube_object.kind(child)
            logger.warning("The API server refuses the %s: %s", kind, error.message)
            return ApplyProblem(kind, kube_object.name(child), error.reason, error.message)

    async def _make(self, child: KubeObject, uid: str) -> ApplyProblem | None:
        place = _place(child)
        live = self._store.get(*place)
        if live is None and (live := await self._create(child)) is None:
            return None
        if kube_object.owner_uid(live) != uid:
            self._taken.add(place)
            return _conflict(child, live)
        self._taken.discard(place)
        if not contains(child, live):
            if seconds := self._contests.hold(place, _fingerprint(child), time.monotonic()):
                raise ContestedError(
                    f"somebody else changes the {place[0]} again and again ({changed_fields(child, live)}); is there another operator?", seconds
                )
            self._store.put(await self._change(child, live))
            logger.info("Changed the %s: %s", place[0], changed_fields(child, live))
        return None

    async def _create(self, child: KubeObject) -> KubeObject | None:
        """Makes the child, unless its place is taken: the watches show only objects with our label. What is there, then."""
        place = _place(child)
        kind = BY_KIND[place[0]]
        if place not in self._taken:
            try:
                self._created(await self._cluster.apply_new(kind, child))
                return None
            except ApiError as error:
                if error.status != 409:
                    raise
        live = await self._cluster.get(kind, place[1], place[2])
        if live is None:
            self._created(await self._cluster.apply(kind, child))
        return live

    def _created(self, obj: KubeObject) -> None:
        self._taken.discard(_place(obj))
        self._contests.forget(_place(obj))
        self._store.put(obj)
        logger.info("Created the %s", kube_object.kind(obj))

    async def remove_unwanted(self, key: Key, uid: str, wanted: Sequence[KubeObject]) -> None:
        """Deletes what is ours of this InferenceDeployment and not among `wanted`."""
        kept = {(kube_object.kind(child), kube_object.name(child)) for child in wanted}
        for obj in self._ours(key, uid):
            if (kube_object.kind(obj), kube_object.name(obj)) not in kept and "deletionTimestamp" not in obj["metadata"]:
                await self._cluster.delete(BY_KIND[kube_object.kind(obj)], obj)
                logger.info("Deleted the %s: it is no longer wanted", kube_object.kind(obj))

    async def _change(self, child: KubeObject, live: KubeObject) -> KubeObject:
        kind = BY_KIND[kube_object.kind(child)]
        try:
            return await self._cluster.apply(kind, child)
        except ApiError as error:
            if error.status != 422 or kind is DEPLOYMENT:
                raise
            # Whoever changed the number of a Service's port made it, to an apply, another port beside ours. A merge patch takes lists as a whole.
            return await self._cluster.merge(kind, kube_object.namespace(child), kube_object.name(child), child)

    def _ours(self, key: Key, uid: str) -> Iterable[KubeObject]:
        return [obj for kind in OPTIONAL_CHILDREN for obj in self._store.of(key, kind.kind) if kube_object.owner_uid(obj) == uid]


def _place(obj: KubeObject) -> tuple[str, str, str]:
    return kube_object.kind(obj), kube_object.namespace(obj), kube_object.name(obj)


def _fingerprint(child: KubeObject) -> str:
    """Another one says that something else is wanted."""
    annotations = kube_object.annotations(child)
    return "/".join(annotations.get(name, "") for name in (DESIRED_ANNOTATION, TEMPLATE_INPUTS_ANNOTATION, RENDERED_BY_ANNOTATION))


def _conflict(child: KubeObject, live: KubeObject) -> ApplyProblem:
    kind, name = kube_object.kind(child), kube_object.name(child)
    owner = next(
        (f"{reference['kind']} {reference['name']}" for reference in live["metadata"].get("ownerReferences") or () if reference.get("controller")), None
    )
    if owner == f"{KIND} {name}":
        # An InferenceDeployment of this name was deleted and made anew; the garbage collector has not come to its child yet.
        return ApplyProblem(kind, name, NAME_CONFLICT, f"{kind} {name} of the deleted {KIND} of this name is still there; it goes by itself")
    whose = f"belongs to {owner}" if owner else "was not made by this operator"
    return ApplyProblem(kind, name, NAME_CONFLICT, f"{kind} {name} exists and {whose}; it is left as it is: delete it, or choose another name")
