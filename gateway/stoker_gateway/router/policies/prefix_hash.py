"""The replica whose prefix cache has most of the prompt, unless it is too busy.

The memory of what went where is that of SGLang's router and of llm-d's prefix scorer, with blocks of bytes for want of a tokenizer. How much busier
a replica may be grows with the share of the prompt that it saves, and a beginning that much of the traffic is about is given to more replicas, both
as in Preble. What no replica has had goes by the hash of its beginning to the less busy of two, so that several gateways agree without a word, and prompts
that share nothing are spread as by LeastRequest. None gets anything beyond a bound, as in consistent hashing with bounded loads (Mirrokni, Thorup and
Zadimoghaddam).
"""

from collections.abc import Mapping, Sequence
from random import random

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.policies.popularity import Popularity
from stoker_gateway.router.policies.prefix_blocks import BOUNDARIES, SMALLEST_BYTES, block_hashes
from stoker_gateway.router.policies.prefix_memory import Holders, PrefixMemory
from stoker_gateway.router.policies.rendezvous import first_two_of
from stoker_gateway.router.policy import RoutingKey

SLACK_SHARE = 0.5
"""A replica that has the whole prompt may have so much of the mean more requests than the least busy one."""

SLACK_REQUESTS = 4.0
"""Or so many, where that is more. With fewer, prompts leave their replicas so often that all caches hold the same in the end."""

HASHED_BYTES = 2 * SMALLEST_BYTES
"""Of the prompt, for what is not remembered."""


class PrefixHash:
    """Remembers what it has sent where."""

    def __init__(self) -> None:
        self._memory = PrefixMemory()
        self._popularity = Popularity()

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint:
        loads = {endpoint: endpoint.num_requests(now) for endpoint in endpoints}
        hashes = block_hashes(key.prompt)
        known = self._memory.holders(hashes)
        popularity = self._popularity.share(hashes[len(known) - 1] if known else None)
        endpoint = _to_spread(known, popularity, loads) or _holder(known, len(hashes), loads) or _hashed(key.prompt, loads)
        self._memory.remember(hashes, endpoint)
        return endpoint


def _to_spread(known: Sequence[Holders], popularity: float, loads: Mapping[Endpoint, int]) -> Endpoint | None:
    """The least busy replica, where fewer have the beginning than its share of the traffic takes."""
    if not known:
        return None
    holders = [holder for holder in known[-1] if holder in loads]
    if len(holders) >= popularity * len(loads):
        return None
    return min(loads, key=lambda endpoint: (loads[endpoint], endpoint not in holders))


def _holder(known: Sequence[Holders], num_blocks: int, loads: Mapping[Endpoint, int]) -> Endpoint | None:
    """The least busy of those that have had the most; None where all of them are too busy for what they save."""
    for depth in range(len(known), 0, -1):
        holders = [holder for holder in known[depth - 1] if holder in loads]
        if not holders:
            continue
        # Any of those that are alike: several gateways must not all take the same one.
        best = min(holders, key=lambda holder: (loads[holder], random()))
        share = BOUNDARIES[depth - 1] / BOUNDARIES[num_blocks - 1]
        if loads[best] < _bound(loads, share):
            return best
    return None


def _hashed(prompt: bytes, loads: Mapping[Endpoint, int]) -> Endpoint:
    bound = _bound(loads, 1.0)
    able = [endpoint for endpoint, load in loads.items() if load < bound]
    return min(first_two_of(able, prompt[:HASHED_BYTES]), key=loads.__getitem__)


def _bound(loads: Mapping[Endpoint, int], share: float) -> float:
    """What a replica has less than, if it is to get a request of which it has this share: more than the least busy one has."""
    mean = (sum(loads.values()) + 1) / len(loads)
    return min(loads.values()) + share * max(SLACK_REQUESTS, SLACK_SHARE * mean)
