"""Whether a cluster has room for one more pod, by arithmetic over its nodes: what the scheduler will find, but for what only it can know."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from stoker_operator import kube_object
from stoker_operator.kube_object import KubeObject
from stoker_operator.quantities import amount

Amounts = dict[str, Decimal]
"""By resource name."""

PODS = "pods"
"""The resource of which every pod takes one."""


def has_room(pod_spec: KubeObject, nodes: Iterable[KubeObject], pods: Iterable[KubeObject]) -> bool:
    """Whether a node that `pod_spec` may go to has its requests left over. `pods` are those of the whole cluster, as far as they are known."""
    used: dict[str, Amounts] = defaultdict(dict)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            used[node] = _sum(used[node], requests(pod["spec"]))
    wanted = requests(pod_spec)
    return any(_fits(wanted, node, used[kube_object.name(node)]) for node in nodes if may_go_to(pod_spec, node))


def requests(pod_spec: KubeObject) -> Amounts:
    """What the scheduler reserves for a pod: all containers and sidecars together, or the largest init container beside the sidecars before it."""
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in _maps(pod_spec.get("initContainers")):
        own = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, own)
            own = {}
        largest = _max(largest, _sum(sidecars, own))
    running = sidecars
    for container in _maps(pod_spec.get("containers")):
        running = _sum(running, _requests_of(container))
    overhead = _amounts(_map(pod_spec.get("overhead")))
    return _sum(_sum(_max(running, largest), overhead), {PODS: Decimal(1)})


def may_go_to(pod_spec: KubeObject, node: KubeObject) -> bool:
    """Whether the node is ready, takes new pods, and is one that the pod's selector, node affinity and tolerations allow."""
    ready = kube_object.condition(node, "Ready")
    if node["spec"].get("unschedulable") or ready is None or ready.get("status") != "True":
        return False
    labels = kube_object.labels(node)
    if any(labels.get(name) != value for name, value in _map(pod_spec.get("nodeSelector")).items()):
        return False
    return _affinity_allows(pod_spec, node) and _taints_allow(pod_spec, node)


def _map(value: Any) -> KubeObject:
    """A pod's fields are what a user wrote: what is no map says nothing here, and the API server refuses it."""
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _maps(value: Any) -> list[KubeObject]:
    return [item for item in _items(value) if isinstance(item, dict)]


def _fits(wanted: Amounts, node: KubeObject, used: Amounts) -> bool:
    allocatable = _amounts((node.get("status") or {}).get("allocatable") or {})
    return all(number + used.get(name, 0) <= allocatable.get(name, 0) for name, number in wanted.items() if number)


def _requests_of(container: KubeObject) -> Amounts:
    """A limit without a request is a request, too."""
    resources = _map(container.get("resources"))
    return _amounts({**_map(resources.get("limits")), **_map(resources.get("requests"))})


def _amounts(quantities: Mapping[str, Any]) -> Amounts:
    """What is no quantity counts nothing: the API server will say so."""
    amounts = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = amount(quantity)
        except ValueError:
            continue
    return amounts


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in one.keys() | other.keys()}


def _max(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in one.keys() | other.keys()}


def _affinity_allows(pod_spec: KubeObject, node: KubeObject) -> bool:
    required = _map(_map(_map(pod_spec.get("affinity")).get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution"))
    return not required or any(_term_allows(term, node) for term in _maps(required.get("nodeSelectorTerms")))


def _term_allows(term: KubeObject, node: KubeObject) -> bool:
    """A term without expressions allows no node."""
    by_label, by_field = _maps(term.get("matchExpressions")), _maps(term.get("matchFields"))
    labels, fields = kube_object.labels(node), {"metadata.name": kube_object.name(node)}
    return bool(by_label or by_field) and all(_matches(one, labels) for one in by_label) and all(_matches(one, fields) for one in by_field)


def _matches(expression: KubeObject, values: Mapping[str, str]) -> bool:
    value = values.get(str(expression.get("key")))
    allowed = [str(item) for item in _items(expression.get("values"))]
    match expression.get("operator"):
        case "In":
            return value in allowed
        case "NotIn":
            return value not in allowed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _is_beyond(operator, value, allowed)
        case _:
            return False


def _is_beyond(operator: str, value: str | None, allowed: Sequence[str]) -> bool:
    try:
        number, bound = int(value or ""), int(allowed[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound


def _taints_allow(pod_spec: KubeObject, node: KubeObject) -> bool:
    tolerations = _maps(pod_spec.get("tolerations"))
    hard = [taint for taint in node["spec"].get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in hard)


def _tolerates(toleration: KubeObject, taint: KubeObject) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")
