from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from stoker_gateway.router.endpoint import Endpoint
from stoker_gateway.router.fleet_view import Address, EndpointView
from stoker_gateway.router.policies import make_policy, prefix_memory
from stoker_gateway.router.policies.least_request import LeastRequest
from stoker_gateway.router.policies.prefix_blocks import BOUNDARIES, MAX_PROMPT_BYTES, SMALLEST_BYTES, block_hashes
from stoker_gateway.router.policies.prefix_hash import PrefixHash
from stoker_gateway.router.policies.prefix_memory import PrefixMemory
from stoker_gateway.router.policies.round_robin import RoundRobin
from stoker_gateway.router.policies.session_hash import SessionHash
from stoker_gateway.router.policy import Policy, RoutingKey
from stoker_gateway.router.replica_load import FRESH_SECONDS, ReplicaLoad
from stoker_gateway.router.traffic import TrafficConfig

NOW = 1000.0
NO_KEY = RoutingKey()


def _endpoints(count: int, first: int = 0) -> list[Endpoint]:
    return [Endpoint(EndpointView(Address(f"10.0.0.{index}", 8000), f"pod-{index}", is_ready=True)) for index in range(first, first + count)]


def test_each_way_to_balance_has_its_policy() -> None:
    ways = {"LeastRequest": LeastRequest, "RoundRobin": RoundRobin, "PrefixHash": PrefixHash, "SessionHash": SessionHash}
    for name, policy in ways.items():
        assert type(make_policy(TrafficConfig(load_balancing=name, session_header="X-Session-Id"))) is policy  # type: ignore[arg-type]


def test_the_less_busy_of_two_gets_the_request() -> None:
    first, second = _endpoints(2)
    first.num_in_flight = 1
    assert {LeastRequest().choose([first, second], NO_KEY, NOW) for _ in range(20)} == {second}


def test_what_a_replica_tells_of_itself_counts_while_it_is_fresh() -> None:
    first, second = _endpoints(2)
    first.load = ReplicaLoad(NOW, running=3, waiting=2, kv_cache_usage=0.5)
    second.num_in_flight = 1
    assert LeastRequest().choose([first, second], NO_KEY, NOW) is second
    assert LeastRequest().choose([first, second], NO_KEY, NOW + FRESH_SECONDS + 1) is first


def test_of_what_a_replica_tells_this_gateways_own_requests_are_counted_as_they_are_now() -> None:
    (endpoint,) = _endpoints(1)
    endpoint.load = ReplicaLoad(NOW, running=5, waiting=0, kv_cache_usage=0.5, num_own=3)
    endpoint.num_in_flight = 1
    assert endpoint.num_requests(NOW) == 3
    endpoint.load = ReplicaLoad(NOW, running=2, waiting=0, kv_cache_usage=0.5, num_own=3)
    assert endpoint.num_requests(NOW) == 1


def test_of_many_replicas_the_busiest_gets_nothing_and_all_others_something() -> None:
    endpoints = _endpoints(5)
    endpoints[3].num_in_flight = 9
    chosen = Counter(LeastRequest().choose(endpoints, NO_KEY, NOW) for _ in range(400))
    assert chosen.keys() == set(endpoints) - {endpoints[3]}


def test_two_choices_keep_the_busiest_near_the_mean() -> None:
    endpoints = _endpoints(10)
    for _ in range(1000):
        LeastRequest().choose(endpoints, NO_KEY, NOW).num_in_flight += 1
    assert max(endpoint.num_in_flight for endpoint in endpoints) <= 105


def test_round_robin_takes_each_in_turn() -> None:
    endpoints = _endpoints(3)
    policy = RoundRobin()
    chosen = [policy.choose(endpoints, NO_KEY, NOW) for _ in range(9)]
    assert chosen[:3] == chosen[3:6] == chosen[6:]
    assert set(chosen) == set(endpoints)


def test_a_session_keeps_its_replica_in_every_gateway() -> None:
    policy, other = SessionHash(), SessionHash()
    for session in map(str, range(50)):
        key = RoutingKey(session=session)
        assert policy.choose(_endpoints(4), key, NOW).address == other.choose(_endpoints(4)[::-1], key, NOW).address


def test_sessions_spread_and_a_replica_that_goes_moves_only_its_own() -> None:
    endpoints = _endpoints(5)
    keys = [RoutingKey(session=f"session-{index}") for index in range(2000)]
    policy = SessionHash()
    before = {key: policy.choose(endpoints, key, NOW) for key in keys}
    after = {key: policy.choose(endpoints[1:], key, NOW) for key in keys}
    assert all(300 < count < 500 for count in Counter(before.values()).values())
    assert all(after[key] is before[key] for key in keys if before[key] is not endpoints[0])
    moved = Counter(after[key] for key in keys if before[key] is endpoints[0])
    assert all(count > 60 for count in moved.values()) and len(moved) == 4


def test_a_replica_that_comes_takes_its_share_of_the_sessions_alone() -> None:
    endpoints = _endpoints(5)
    keys = [RoutingKey(session=f"session-{index}") for index in range(2000)]
    policy = SessionHash()
    moved = [key for key in keys if policy.choose(endpoints, key, NOW) is not policy.choose(endpoints[:4], key, NOW)]
    assert 300 < len(moved) < 500
    assert all(policy.choose(endpoints, key, NOW) is endpoints[4] for key in moved)


def test_requests_without_a_session_go_where_there_is_least_to_do() -> None:
    first, second = _endpoints(2)
    first.num_in_flight = 1
    assert {SessionHash().choose([first, second], NO_KEY, NOW) for _ in range(20)} == {second}


def test_blocks_are_equal_as_far_as_the_prompts_are() -> None:
    prompt = bytes(Random(1).randbytes(20_000))
    for shared in (0, 127, 128, 5000, 19_999):
        other = prompt[:shared] + b"?" + prompt[shared + 1 :]
        pairs = zip(block_hashes(prompt), block_hashes(other), strict=True)
        assert sum(mine == other for mine, other in pairs) == sum(end <= shared for end in BOUNDARIES)
    assert block_hashes(prompt[: SMALLEST_BYTES - 1]) == []
    assert len(block_hashes(bytes(2 * MAX_PROMPT_BYTES))) == len(BOUNDARIES) <= 50


def test_the_memory_is_bounded_and_forgets_what_has_not_been_used_the_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_memory, "MAX_BLOCKS", 8)
    memory = PrefixMemory()
    (endpoint,) = _endpoints(1)
    memory.remember([1, 2, 3, 4], endpoint)
    memory.remember([5, 6, 7, 8], endpoint)
    memory.remember([1, 2, 9], endpoint)
    assert len(memory) == 8
    assert memory.holders([1, 2, 3, 4]) == [(endpoint,)] * 3
    assert memory.holders([10, 2]) == []


def test_the_memory_forgets_replicas_that_are_gone() -> None:
    memory = PrefixMemory()
    gone, stays, comes = _endpoints(3)
    memory.remember([1], gone)
    memory.remember([1], stays)
    gone.view = replace(gone.view, is_terminating=True)
    memory.remember([1], comes)
    assert memory.holders([1]) == [(stays, comes)]


def test_prompts_that_begin_alike_go_to_the_same_replica() -> None:
    endpoints = _endpoints(4)
    policy = PrefixHash()
    system = b"You are a helpful assistant. " * 100
    chosen = [policy.choose(endpoints, RoutingKey(system + b"Question %d" % index), NOW) for index in range(20)]
    assert len(set(chosen)) == 1


def test_gateways_agree_on_a_beginning_that_neither_has_seen() -> None:
    for index in range(50):
        key = RoutingKey(b"Document %d. " % index * 50)
        assert PrefixHash().choose(_endpoints(4), key, NOW).address == PrefixHash().choose(_endpoints(4)[::-1], key, NOW).address


def test_a_hot_prefix_spreads_over_as_many_replicas_as_it_needs_and_no_one_is_far_above_the_mean() -> None:
    endpoints = _endpoints(4)
    policy = PrefixHash()
    key = RoutingKey(b"You are a helpful assistant. " * 100)
    for _ in range(200):
        policy.choose(endpoints, key, NOW).num_in_flight += 1
        loads = [endpoint.num_in_flight for endpoint in endpoints]
        assert max(loads) <= min(loads) + 4
    assert max(loads) <= min(loads) + 1


def test_a_prefix_that_little_is_about_stays_where_it_is_while_that_is_bearable() -> None:
    endpoints = _endpoints(4)
    policy = PrefixHash()
    others = [RoutingKey(b"Document %d. " % index * 100) for index in range(20)]
    for key in others:
        policy.choose(endpoints, key, NOW)
    holder = policy.choose(endpoints, others[0], NOW)
    for busy, is_kept in ((1, True), (3, True), (4, False)):
        holder.num_in_flight = busy
        assert (policy.choose(endpoints, others[0], NOW) is holder) == is_kept


def test_a_replica_that_has_little_of_a_prompt_is_not_waited_for() -> None:
    endpoints = _endpoints(4)
    policy = PrefixHash()
    greeting = b"You are a helpful assistant. " * 10
    holder = policy.choose(endpoints, RoutingKey(greeting), NOW)
    holder.num_in_flight = 1
    assert policy.choose(endpoints, RoutingKey(greeting), NOW) is holder
    assert policy.choose(endpoints, RoutingKey(greeting + Random(1).randbytes(8000)), NOW) is not holder


def test_a_replica_that_has_been_tried_or_is_gone_gets_nothing() -> None:
    endpoints = _endpoints(3)
    policy = PrefixHash()
    key = RoutingKey(b"x" * 1000)
    holder = policy.choose(endpoints, key, NOW)
    rest = [endpoint for endpoint in endpoints if endpoint is not holder]
    assert policy.choose(rest, key, NOW) in rest


# A fleet, simulated: each replica has a prefix cache of a bounded size, and a request takes a while.


@dataclass
class _Replica:
    cache_blocks: int
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    prompt_bytes: int = 0
    cached_bytes: int = 0

    def prefill(self, prompt: bytes) -> None:
        """Whole blocks of 64 bytes, each only where all before it were there, the least recently used given up."""
        is_hit = True
        self.prompt_bytes += len(prompt)
        for end in range(64, len(prompt) + 1, 64):
            is_hit = is_hit and prompt[:end] in self.cache
            self.cached_bytes += 64 * is_hit
            self.cache[prompt[:end]] = None
            self.cache.move_to_end(prompt[:end])
        while len(self.cache) > self.cache_blocks:
            self.cache.popitem(last=False)


def _hit_rate(policy: Policy, prompts: Iterator[bytes], in_flight: int = 16) -> tuple[float, int]:
    """The share of the prompts' bytes that the caches had, and the most that one of four replicas had in flight."""
    endpoints = _endpoints(4)
    replicas = {endpoint: _Replica(cache_blocks=600) for endpoint in endpoints}
    running: list[Endpoint] = []
    random = Random(7)
    most = 0
    for prompt in prompts:
        endpoint = policy.choose(endpoints, RoutingKey(prompt), NOW)
        endpoint.num_in_flight += 1
        replicas[endpoint].prefill(prompt)
        running.append(endpoint)
        most = max(most, endpoint.num_in_flight)
        if len(running) >= in_flight:
            running.pop(random.randrange(len(running))).num_in_flight -= 1
    total = sum(replica.prompt_bytes for replica in replicas.values())
    return sum(replica.cached_bytes for replica in replicas.values()) / total, most


def _shared_documents(count: int) -> Iterator[bytes]:
    """Forty documents of 2 KiB, some asked about more often than others, each question another one."""
    random = Random(3)
    documents = [random.randbytes(2048) for _ in range(40)]
    weights = [1 / (rank + 1) ** 0.5 for rank in range(40)]
    for _ in range(count):
        yield random.choices(documents, weights)[0] + random.randbytes(256)


def _conversations(count: int) -> Iterator[bytes]:
    """Sixteen at a time, each turn with all that was said before; an ended one makes room for another."""
    random = Random(5)
    open_ones = [random.randbytes(300) for _ in range(16)]
    for _ in range(count):
        index = random.randrange(len(open_ones))
        yield open_ones[index]
        open_ones[index] = open_ones[index] + random.randbytes(400) if len(open_ones[index]) < 4000 else random.randbytes(300)


def _strangers(count: int) -> Iterator[bytes]:
    random = Random(9)
    return (random.randbytes(1500) for _ in range(count))


@pytest.mark.parametrize("workload", [_shared_documents, _conversations])
def test_prefix_caches_miss_less_than_half_as_often_as_by_least_request(workload: Callable[[int], Iterator[bytes]]) -> None:
    by_prefix, _ = _hit_rate(PrefixHash(), workload(500))
    by_load, _ = _hit_rate(LeastRequest(), workload(500))
    assert by_prefix > 0.7
    assert 1 - by_prefix < (1 - by_load) / 2


def test_prompts_that_share_nothing_are_spread_as_by_least_request() -> None:
    _, most = _hit_rate(PrefixHash(), _strangers(500))
    _, most_by_load = _hit_rate(LeastRequest(), _strangers(500))
    assert most <= most_by_load + 1
