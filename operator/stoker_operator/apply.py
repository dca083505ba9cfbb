"""Desired children → the cluster's. Writes what differs, touches nothing of others, and goes on past a child that cannot be written."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stoker_operator import kube_object
from stoker_operator.changes import changed_fields
from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import BY_KIND, CHILDREN, DEPLOYMENT, OPTIONAL_CHILDREN
from stoker_operator.contests import Contests
from stoker_operator.errors import ApiError, ClusterError, ContestedError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import DESIRED_ANNOTATION, KIND, RENDERED_BY_ANNOTATION, TEMPLATE_INPUTS_ANNOTATION
from stoker_operator.observed import NAME_CONFLICT, ApplyProblem
from stoker_operator.resources.containment import contains
from stoker_operator.scale_in import PodPricer
from stoker_operator.settle import settle
from stoker_operator.store import Key, Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Applied:
    """`problems`: what the API server refuses. `failure`: the first of what may pass. `is_behind`: something was never written as desired."""

    problems: tuple[ApplyProblem, ...] = ()
    failure: ClusterError | None = None
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of one child. Neither: it is as desired."""

    problem: ApplyProblem | None = None
    failure: ClusterError | None = None
    is_behind: bool = False


class Applier:
    """One child's trouble is not the others'."""

    def __init__(self, cluster: Cluster, store: Store, pricer: PodPricer) -> None:
        self._cluster = cluster
        self._store = store
        self._pricer = pricer
        self._contests = Contests()
        self._taken: set[tuple[str, str, str]] = set()
        """Where objects of others stood when last looked at: nothing is sent there before another look."""

    async def apply_all(self, key: Key, uid: str, children: Sequence[KubeObject]) -> Applied:
        """The children become as desired, the first one first, for pods need a ServiceAccount; what the InferenceDeployment `uid` no longer wants goes."""
        account, others = children[0], children[1:]
        outcomes = [await self._apply(account, uid)]
        if outcomes[0].failure is not None and self._store.get(*_place(account)) is None:
            others = [child for child in others if child["kind"] != DEPLOYMENT.kind]
        outcomes += await settle(self._apply(child, uid) for child in others)
        outcomes += await settle(self._delete(obj) for obj in self._unwanted(key, uid, children))
        return Applied(
            problems=tuple(each.problem for each in outcomes if each.problem is not None),
            failure=next((each.failure for each in outcomes if each.failure is not None), None),
            is_behind=any(each.is_behind for each in outcomes),
        )

    def forget(self, key: Key) -> None:
        """An InferenceDeployment that is gone: its children have its name."""
        for kind in CHILDREN:
            place = (kind.kind, *key)
            self._contests.forget(place)
            self._taken.discard(place)

    async def _apply(self, child: KubeObject, uid: str) -> _Outcome:
        kind = kube_object.kind(child)
        try:
            return _Outcome(await self._make(child, uid))
        except ApiError as error:
            if error.passing:
                return _Outcome(failure=error, is_behind=not self._is_reached(child))
            logger.warning("The API server refuses the %s: %s", kind, error.message)
            return _Outcome(ApplyProblem(kind, kube_object.name(child), error.reason, error.message))
        except ClusterError as error:
            return _Outcome(failure=error, is_behind=not self._is_reached(child))

    def _is_reached(self, child: KubeObject) -> bool:
        """Whether the same was written before, whatever somebody has made of it since."""
        live = self._store.get(*_place(child))
        return live is not None and _fingerprint(live) == _fingerprint(child)

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
            await self._repair(child, live)
        return None

    async def _repair(self, child: KubeObject, live: KubeObject) -> None:
        place, changed = _place(child), changed_fields(child, live)
        if seconds := self._contests.hold(place, _fingerprint(child), time.monotonic()):
            raise ContestedError(f"somebody else changes the {place[0]} again and again ({changed}); is there another operator?", seconds)
        if place[0] == DEPLOYMENT.kind:
            await self._pricer.before(child, live)
        self._store.put(await self._change(child))
        self._contests.written(place, _fingerprint(child), time.monotonic())
        logger.info("Changed the %s: %s", place[0], changed)

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

    def _unwanted(self, key: Key, uid: str, wanted: Sequence[KubeObject]) -> list[KubeObject]:
        kept = {_place(child) for child in wanted}
        ours = (obj for kind in OPTIONAL_CHILDREN for obj in self._store.of(key, kind.kind) if kube_object.owner_uid(obj) == uid)
        return [obj for obj in ours if _place(obj) not in kept and "deletionTimestamp" not in obj["metadata"]]

    async def _delete(self, obj: KubeObject) -> _Outcome:
        try:
            await self._cluster.delete(BY_KIND[kube_object.kind(obj)], obj)
        except ClusterError as error:
            return _Outcome(failure=error, is_behind=True)
        logger.info("Deleted the %s: it is no longer wanted", kube_object.kind(obj))
        return _Outcome()

    async def _change(self, child: KubeObject) -> KubeObject:
        kind = BY_KIND[kube_object.kind(child)]
        try:
            return await self._cluster.apply(kind, child)
        except ApiError as error:
            if error.status != 422 or kind is DEPLOYMENT:
                raise
            # Whoever changed the number of a Service's port made it, to an apply, another port beside ours. A merge patch takes lists as a whole.
            return await self._cluster.merge(kind, kube_object.namespace(child), kube_object.name(child), child)


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
