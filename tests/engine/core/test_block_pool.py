import pytest

from stoker_engine.core.block_pool import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock


def free_ids(pool: BlockPool) -> list[int]:
    return [block.block_id for block in pool.free_queue.blocks()]


@pytest.mark.property("P11")
def test_freed_blocks_queue_by_what_is_lost_with_them() -> None:
    pool = BlockPool(6)
    of_a = pool.allocate(2)
    for block, block_hash in zip(of_a, (b"a0", b"a1"), strict=True):
        pool.cache(block, block_hash)
    of_b = pool.allocate(1)
    assert free_ids(pool) == [4, 5]
    pool.free(of_a)
    assert free_ids(pool) == [4, 5, 2, 1]
    pool.free(of_b)
    assert free_ids(pool) == [3, 4, 5, 2, 1]
    hit = pool.get_cached(b"a0")
    assert hit is not None
    pool.touch([hit])
    assert free_ids(pool) == [3, 4, 5, 2]
    assert [block.block_id for block in pool.allocate(1)] == [3]
    assert [block.block_id for block in pool.allocate(3)] == [4, 5, 2]
    assert pool.get_cached(b"a1") is None
    with pytest.raises(IndexError, match="no free block"):
        pool.allocate(1)


@pytest.mark.property("P4")
def test_the_null_block_is_never_free_nor_counted() -> None:
    pool = BlockPool(4)
    assert (pool.num_usable_blocks, pool.num_free_blocks, pool.usage) == (3, 3, 0.0)
    assert [block.block_id for block in pool.allocate(3)] == [1, 2, 3]
    assert pool.usage == 1.0


@pytest.mark.property("P12")
def test_a_pool_of_the_null_block_alone_is_empty() -> None:
    assert BlockPool(1).usage == 0.0


@pytest.mark.property("P3")
def test_a_shared_block_is_free_only_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(1)
    pool.touch(blocks)
    pool.free(blocks)
    assert pool.num_free_blocks == 1
    pool.free(blocks)
    assert pool.num_free_blocks == 2


def test_the_block_filled_last_stands_for_equal_content() -> None:
    pool = BlockPool(4)
    older, newer = pool.allocate(2)
    pool.cache(older, b"h")
    pool.free([older])
    pool.cache(newer, b"h")
    assert pool.get_cached(b"h") is newer
    assert older.block_hash is None
    assert free_ids(pool) == [older.block_id, 3]


def test_an_uncached_block_stays_with_its_holder() -> None:
    pool = BlockPool(3)
    (block,) = pool.allocate(1)
    pool.cache(block, b"h")
    pool.uncache(block)
    pool.uncache(block)
    assert pool.get_cached(b"h") is None
    assert (block.ref_cnt, free_ids(pool)) == (1, [2])


def test_a_reset_is_refused_while_a_block_is_in_use() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(1)
    pool.cache(blocks[0], b"h")
    assert not pool.reset_cache()
    assert pool.get_cached(b"h") is blocks[0]
    pool.free(blocks)
    assert pool.reset_cache()
    assert pool.get_cached(b"h") is None
    assert blocks[0].block_hash is None


def test_a_block_leaves_the_middle_of_the_free_queue() -> None:
    blocks = [KVCacheBlock(block_id) for block_id in range(4)]
    queue = FreeKVCacheBlockQueue(blocks)
    queue.remove(blocks[2])
    assert queue.blocks() == [blocks[0], blocks[1], blocks[3]]
    queue.prepend(blocks[2])
    assert queue.popleft() is blocks[2]
    assert queue.num_free_blocks == 3
