"""The replica whose prefix cache has most of the prompt, unless it is too busy.

The memory of what went where is that of SGLang's router and of llm-d's prefix scorer, with blocks of bytes for want of a tokenizer. How much busier
a replica may be grows with the share of the prompt that it saves, as in Preble, and is bounded as in consistent hashing with bounded loads
(Mirrokni, Thorup and Zadimoghaddam): a hot prefix spreads over as many replicas as it needs. What no replica has had goes by the hash of its
beginning to the less busy of two, so that several gateways agree without a word, and prompts that share nothing are spread as by LeastRequest.
"""

from collections.abc import Mapping, Sequence

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.policies.prefix_blocks import BOUNDARIES, SMALLEST_BYTES, block_hashes
from stoker_gateway.router.policies.prefix_memory import PrefixMemory
from stoker_gateway.router.policies.rendezvous import first_two_of
from stoker_gateway.router.policy import RoutingKey

SLACK_SHARE = 0.25
"""A replica that has the whole prompt may be this much busier than the mean."""

SLACK_REQUESTS = 4.0
"""Or by so many requests, where that is more: a few that run together cost an engine less than a prefill."""

HASHED_BYTES = 2 * SMALLEST_BYTES
"""Of the prompt, for what is not remembered."""


class PrefixHash:
    """Remembers what it has sent where."""

    def __init__(self) -> None:
        self._memory = PrefixMemory()

    def choose(self, endpoints: Sequence[Endpoint], key: RoutingKey, now: float) -> Endpoint:
        loads = {endpoint: endpoint.num_requests(now) for endpoint in endpoints}
        hashes = block_hashes(key.prompt)
        endpoint = self._holder(hashes, loads) or _hashed(key.prompt, loads)
        self._memory.remember(hashes, endpoint, loads)
        return endpoint

    def _holder(self, hashes: Sequence[int], loads: Mapping[Endpoint, int]) -> Endpoint | None:
        """The least busy of those that have had the most; None where all of them are too busy for what they save."""
        mean = _mean(loads)
        known = self._memory.holders(hashes)
        for depth in range(len(known), 0, -1):
            holders = [holder for holder in known[depth - 1] if holder in loads]
            if not holders:
                continue
            best = min(holders, key=loads.__getitem__)
            share = BOUNDARIES[depth - 1] / BOUNDARIES[len(hashes) - 1]
            if loads[best] < mean + share * max(SLACK_REQUESTS, SLACK_SHARE * mean):
                return best
        return None


def _hashed(prompt: bytes, loads: Mapping[Endpoint, int]) -> Endpoint:
    limit = (1 + SLACK_SHARE) * _mean(loads)
    able = [endpoint for endpoint, load in loads.items() if load < limit]
    return min(first_two_of(able, prompt[:HASHED_BYTES]), key=loads.__getitem__)


def _mean(loads: Mapping[Endpoint, int]) -> float:
    """With the request that is to be sent: one replica at least has less."""
    return (sum(loads.values()) + 1) / len(loads)
