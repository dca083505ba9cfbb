"""The ways to choose a replica, by `spec.traffic.loadBalancing`."""

from stoker_gateway.router.policies.least_request import LeastRequest
from stoker_gateway.router.policy import Policy
from stoker_gateway.router.traffic import TrafficConfig


def make_policy(traffic: TrafficConfig) -> Policy:
    match traffic.load_balancing:
        case _:
            return LeastRequest()
