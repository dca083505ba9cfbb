"""Rendezvous hashing (highest random weight): each key ranks the replicas, the same way in every gateway.

One that goes leaves its keys to the next in each of their ranks, so that they spread over all others; one that comes takes its share from each.
"""

from collections.abc import Iterable
from hashlib import blake2b
from heapq import nlargest

from stoker_gateway.router.endpoint import Endpoint


def first_of(endpoints: Iterable[Endpoint], key: bytes) -> Endpoint:
    return max(endpoints, key=lambda endpoint: _weight(endpoint, key))


def first_two_of(endpoints: Iterable[Endpoint], key: bytes) -> list[Endpoint]:
    """One, where there is only one."""
    return nlargest(2, endpoints, key=lambda endpoint: _weight(endpoint, key))


def _weight(endpoint: Endpoint, key: bytes) -> bytes:
    name = f"{endpoint.view.pod} {endpoint.address} "
    return blake2b(name.encode() + key, digest_size=8).digest()
