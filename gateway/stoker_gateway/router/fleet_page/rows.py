"""What the fleet page shows of a model, read off the live objects."""

import time
from typing import Literal

import msgspec

from stoker_gateway.router.admission.admission import Admission
from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.name_claims import full_name
from stoker_gateway.router.served_model import ServedModel

PodState = Literal["ready", "notReady", "terminating", "ejected"]


class PodRow(msgspec.Struct, rename="camel", omit_defaults=True):
    """`running` to `tokens_per_second` are the replica's own words, absent where it has said nothing; `is_old`: it said so a while ago.

    `ejected_until` is in seconds since the epoch. `failures` counts those in a row.
    """

    pod: str
    address: str
    state: PodState
    in_flight: int = 0
    ejected_until: float | None = None
    failures: int = 0
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage: float | None = None
    tokens_per_second: float | None = None
    is_old: bool = False


class ModelRow(msgspec.Struct, rename="camel"):
    """`names` are those it has, `taken` those it claims in vain, each with its owner. Of the counts, `in_flight` and `waiting` are this gateway's."""

    uid: str
    title: str
    names: tuple[str, ...]
    taken: tuple[tuple[str, str], ...]
    wanted: int
    ready: int
    load_balancing: str
    in_flight: int
    waiting: int
    pods: list[PodRow]


def model_row(model: ServedModel, admission: Admission, now: float) -> ModelRow:
    """`now` by the steady clock that endpoints are judged by."""
    return ModelRow(
        uid=model.view.uid,
        title=full_name(model.view),
        names=model.names,
        taken=model.names_taken,
        wanted=model.view.replicas,
        ready=sum(endpoint.is_ready for endpoint in model.endpoints),
        load_balancing=model.view.traffic.load_balancing,
        in_flight=sum(endpoint.num_in_flight for endpoint in model.endpoints),
        waiting=admission.num_waiting(model),
        pods=[pod_row(endpoint, now) for endpoint in model.endpoints],
    )


def pod_row(endpoint: Endpoint, now: float) -> PodRow:
    row = PodRow(endpoint.view.pod, str(endpoint.address), _state(endpoint, now), endpoint.num_in_flight, failures=endpoint.health.num_failures)
    if row.state == "ejected":
        row.ejected_until = round(time.time() + endpoint.health.ejected_until - now)
    if (load := endpoint.load) is not None:
        row.running, row.waiting, row.kv_cache_usage = load.running, load.waiting, round(load.kv_cache_usage, 3)
        row.is_old = not load.is_fresh(now)
        if load.tokens_per_second is not None and not row.is_old:
            row.tokens_per_second = round(load.tokens_per_second, 1)
    return row


def _state(endpoint: Endpoint, now: float) -> PodState:
    if endpoint.view.is_terminating:
        return "terminating"
    if not endpoint.is_ready:
        return "notReady"
    return "ejected" if endpoint.health.is_ejected(now) else "ready"
