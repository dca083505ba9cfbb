"""What the watches and our own writes have shown of the cluster. Objects are kept encoded: a tenth of the memory, and nobody can change one by accident."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from stoker_operator import kube_object
from stoker_operator.cluster_kinds import INFERENCE_DEPLOYMENT
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL

Key = tuple[str, str]
"""Namespace and name of an InferenceDeployment."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    key: Key | None
    encoded: bytes


class Store:
    """By kind, namespace and name; by InferenceDeployment, too. The newest resourceVersion wins, whatever the order they come in."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[str, str], _Kept]] = defaultdict(dict)
        self._by_key: dict[Key, set[tuple[str, str]]] = defaultdict(set)
        """For each InferenceDeployment: kind and name of what carries its label."""
        self._removed: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
        """At which version an object was deleted: a list or an answer that was under way then may still bring it."""
        self._departed: dict[Key, dict[str, bytes]] = defaultdict(dict)

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        kept = self._kept[kind].get((namespace, name))
        return None if kept is None else _decode(kept.encoded)

    def of(self, key: Key, kind: str) -> list[KubeObject]:
        """The objects of one kind that carry the label of this InferenceDeployment, by name."""
        return [_decode(self._kept[kind][key[0], name].encoded) for found, name in sorted(self._by_key.get(key, ())) if found == kind]

    def keys(self) -> list[Key]:
        """All InferenceDeployments."""
        return list(self._kept[INFERENCE_DEPLOYMENT.kind])

    @property
    def num_keys(self) -> int:
        return len(self._kept[INFERENCE_DEPLOYMENT.kind])

    def put(self, obj: KubeObject) -> bool:
        """Keeps `obj` unless a newer one, or this very one, is there or was deleted; says whether it is news."""
        kind, place = kube_object.kind(obj), (kube_object.namespace(obj), kube_object.name(obj))
        version = version_of(obj)
        before = self._kept[kind].get(place)
        if (before is not None and before.version >= version) or self._removed[kind].get(place, -1) >= version:
            return False
        self._forget(kind, place)
        self._removed[kind].pop(place, None)
        key = key_of(obj)
        self._kept[kind][place] = _Kept(version, key, _encode(_without_noise(obj)))
        if key is not None and kind != INFERENCE_DEPLOYMENT.kind:
            self._by_key[key].add((kind, place[1]))
        return True

    def remove(self, obj: KubeObject) -> bool:
        """Forgets `obj` unless a newer one of its name is there; says whether it was there."""
        kind, place = kube_object.kind(obj), (kube_object.namespace(obj), kube_object.name(obj))
        kept, version = self._kept[kind].get(place), version_of(obj)
        if kept is not None and kept.version > version:
            return False
        self._removed[kind][place] = version
        self._forget(kind, place)
        return kept is not None

    def replace(self, kind: str, namespace: str | None, listed: Iterable[KubeObject], version: int) -> Iterator[Key]:
        """Takes over a list of a namespace (None: the cluster) made at `version`; yields whose objects were other than thought."""
        names = set()
        for obj in listed:
            names.add((kube_object.namespace(obj), kube_object.name(obj)))
            if self.put(obj) and (key := key_of(obj)) is not None:
                yield key
        for place, kept in list(self._kept[kind].items()):
            if place not in names and kept.version <= version and namespace in (None, place[0]):
                self._forget(kind, place)
                if kept.key is not None:
                    yield kept.key
        for place, removed_at in list(self._removed[kind].items()):
            if removed_at <= version and namespace in (None, place[0]):
                del self._removed[kind][place]

    def forget_kind(self, kind: str) -> None:
        """All objects of a kind that the API server does not know any more."""
        for place in list(self._kept[kind]):
            self._forget(kind, place)
        self._removed.pop(kind, None)

    def keep_departed(self, pod: KubeObject) -> None:
        """A pod as it was when it went: its containers' last words are nowhere else."""
        if (key := key_of(pod)) is not None:
            self._departed[key][kube_object.name(pod)] = _encode(_without_noise(pod))

    def departed(self, key: Key) -> list[KubeObject]:
        """The pods that have gone since `forget_departed`."""
        return [_decode(encoded) for encoded in self._departed.get(key, {}).values()]

    def forget_departed(self, key: Key, pods: Iterable[KubeObject]) -> None:
        """Once a status has told of them."""
        kept = self._departed.get(key, {})
        for pod in pods:
            kept.pop(kube_object.name(pod), None)
        if not kept:
            self._departed.pop(key, None)

    def _forget(self, kind: str, place: tuple[str, str]) -> None:
        kept = self._kept[kind].pop(place, None)
        if kept is None or kept.key is None or kind == INFERENCE_DEPLOYMENT.kind:
            return
        of_key = self._by_key[kept.key]
        of_key.discard((kind, place[1]))
        if not of_key:
            del self._by_key[kept.key]


def key_of(obj: KubeObject) -> Key | None:
    """The InferenceDeployment that an object belongs to by its label; None if to none."""
    if kube_object.kind(obj) == INFERENCE_DEPLOYMENT.kind:
        return kube_object.namespace(obj), kube_object.name(obj)
    owner = kube_object.labels(obj).get(INFERENCE_DEPLOYMENT_LABEL)
    return None if owner is None else (kube_object.namespace(obj), owner)


def version_of(obj: KubeObject) -> int:
    """resourceVersion, which grows with every write to the cluster."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _without_noise(obj: KubeObject) -> KubeObject:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {name: value for name, value in metadata["annotations"].items() if name != LAST_APPLIED}
    return {**obj, "metadata": metadata}
