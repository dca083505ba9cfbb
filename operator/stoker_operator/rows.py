"""A replica's state → the row that shows it."""

from stoker_operator.display import ReplicaRow
from stoker_operator.observation import READY
from stoker_operator.replica import Replica

STOPPED = "stopped"
NOT_READY = "not ready"
PHASES_WITH_PROGRESS = frozenset({"loading"})


def build_row(replica: Replica) -> ReplicaRow:
    """What people want to know first: that it drains, why it is down, else where it is."""
    plan, startup = replica.plan, replica.state.observation.startup
    phase, detail = _phase(replica)
    load = None if phase == STOPPED else replica.state.observation.load
    return ReplicaRow(
        title=plan.title,
        index=plan.index,
        phase=phase,
        detail=detail,
        url=plan.url,
        progress=startup.progress if phase in PHASES_WITH_PROGRESS else None,
        num_running=load.num_running if load else None,
        num_waiting=load.num_waiting if load else None,
        tokens_per_second=load.tokens_per_second if load else None,
        kv_cache_usage=load.kv_cache_usage if load else None,
    )


def _phase(replica: Replica) -> tuple[str, str]:
    observation = replica.state.observation
    if replica.api.ended.is_set() and replica.engine.ended.is_set():
        return STOPPED, ""
    if replica.state.draining:
        num_in_flight = None if replica.api.ended.is_set() else observation.num_in_flight
        return "draining", "" if num_in_flight is None else f"{num_in_flight} {'request' if num_in_flight == 1 else 'requests'} in flight"
    if pending := replica.pending_exit:
        return "restarting", str(pending)
    if observation.is_ready:
        return READY, ""
    if observation.startup.phase == READY:
        return NOT_READY, observation.obstacle or ""
    return observation.startup.phase.replace("_", " "), observation.startup.message
