"""The ways to choose a replica, by `spec.traffic.loadBalancing`."""

from collections.abc import Callable

from stoker_gateway.router.policies.least_request import LeastRequest
from stoker_gateway.router.policies.prefix_hash import PrefixHash
from stoker_gateway.router.policies.round_robin import RoundRobin
from stoker_gateway.router.policies.session_hash import SessionHash
from stoker_gateway.router.policy import Policy
from stoker_gateway.router.traffic import LoadBalancing, TrafficConfig

_POLICIES: dict[LoadBalancing, Callable[[], Policy]] = {
    "LeastRequest": LeastRequest,
    "RoundRobin": RoundRobin,
    "PrefixHash": PrefixHash,
    "SessionHash": SessionHash,
}


def make_policy(traffic: TrafficConfig) -> Policy:
    return _POLICIES[traffic.load_balancing]()
