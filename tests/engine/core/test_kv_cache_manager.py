from collections.abc import Callable

import pytest

from stoker_engine.core.block_hash import BlockHasher
from stoker_engine.core.kv_cache_manager import KVCacheManager
from stoker_engine.core.request import Request

A = list(range(1, 41))


@pytest.fixture
def manager() -> KVCacheManager:
    return KVCacheManager(num_blocks=9, block_size=4)


@pytest.fixture
def hashed_of(request_of: Callable[..., Request]) -> Callable[..., Request]:
    hasher = BlockHasher(4)
    return lambda request_id, prompt, **fields: request_of(request_id, prompt, hasher, **fields)


def admit(manager: KVCacheManager, request: Request, num_new_tokens: int | None = None) -> list[int] | None:
    computed_blocks = manager.get_computed_blocks(request)
    num_cached_tokens = len(computed_blocks) * manager.block_size
    num_new_tokens = request.num_tokens - num_cached_tokens if num_new_tokens is None else num_new_tokens
    block_ids = manager.admit(request, computed_blocks, num_new_tokens)
    if block_ids is not None:
        request.num_computed_tokens = num_cached_tokens + num_new_tokens
    return block_ids


@pytest.mark.property("P16")
def test_a_lookup_changes_nothing(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    admit(manager, hashed_of("a", A[:9]))
    free = manager.block_pool.free_queue.blocks()
    found = manager.get_computed_blocks(hashed_of("b", A[:9]))
    assert [block.block_id for block in found] == [1, 2]
    assert [block.ref_cnt for block in found] == [1, 1]
    assert manager.block_pool.free_queue.blocks() == free


def test_a_prompt_gets_blocks_for_its_chunk_only_but_all_of_it_must_fit(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    assert admit(manager, hashed_of("a", A[:20]), num_new_tokens=6) == [1, 2]
    assert manager.block_pool.num_free_blocks == 6
    assert admit(manager, hashed_of("b", A[5:30]), num_new_tokens=6) is None


@pytest.mark.property("P13")
def test_a_refusal_changes_nothing(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    admit(manager, hashed_of("a", A[:9]))
    request = hashed_of("b", [*A[:8], *A[10:32]])
    free = manager.block_pool.free_queue.blocks()
    assert admit(manager, request) is None
    assert manager.block_pool.free_queue.blocks() == free
    assert list(manager.block_tables) == ["a"]


def test_a_table_grows_by_a_block_when_its_last_one_is_full(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    request = hashed_of("a", A[:7])
    assert admit(manager, request) == [1, 2]
    for added in ([], [3], [], [], [], [4]):
        request.append_token(30)
        assert manager.allocate_slots(request, 1) == added
        request.num_computed_tokens += 1
    assert [block.block_id for block in manager.block_tables["a"].blocks] == [1, 2, 3, 4]


def test_a_running_request_without_room_is_told_so(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    request = hashed_of("a", A[:32])
    admit(manager, request)
    request.append_token(30)
    assert manager.allocate_slots(request, 1) is None
    assert len(manager.block_tables["a"].blocks) == 8


def test_shared_blocks_on_the_free_queue_count_as_taken(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    first = hashed_of("first", A[:17])
    admit(manager, first)
    manager.free(first)
    admit(manager, hashed_of("other", [50] * 16))
    assert manager.block_pool.num_free_blocks == 4
    assert len(manager.get_computed_blocks(hashed_of("again", A[:17]))) == 4
    assert admit(manager, hashed_of("again", A[:17])) is None
    assert manager.block_pool.num_free_blocks == 4


def test_uncached_blocks_are_found_by_nobody_from_the_given_position_on(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    request = hashed_of("a", A[:17])
    admit(manager, request)
    manager.uncache(request, 9)
    assert len(manager.get_computed_blocks(hashed_of("b", A[:17]))) == 2
    manager.free(request)
    assert [block.block_id for block in manager.block_pool.free_queue.blocks()] == [3, 4, 5, 6, 7, 8, 2, 1]


def test_a_request_without_a_table_has_nothing_to_free(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    manager.free(hashed_of("a", A[:4]))
    assert manager.block_pool.num_free_blocks == 8


def test_least_recently_freed_content_is_forgotten_first(manager: KVCacheManager, hashed_of: Callable[..., Request]) -> None:
    for request_id, start in (("old", 0), ("new", 20)):
        request = hashed_of(request_id, A[start : start + 8])
        admit(manager, request)
        manager.free(request)
    admit(manager, hashed_of("big", [60] * 21))
    assert len(manager.get_computed_blocks(hashed_of("old again", A[:9]))) == 0
    assert len(manager.get_computed_blocks(hashed_of("new again", A[20:29]))) == 2
