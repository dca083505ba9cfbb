"""KVCacheManager: the blocks of each request, and the prefix cache."""

from dataclasses import dataclass, field

from stoker_engine.core.block_pool import BlockPool, KVCacheBlock
from stoker_engine.core.request import Request


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request in the order of its tokens. It only grows. Its first `num_cached_blocks` are in the prefix cache."""

    blocks: list[KVCacheBlock] = field(default_factory=list)
    num_cached_blocks: int = 0


class KVCacheManager:
    """Hands out blocks of `block_size` tokens. A request has a block table from `admit` to `free`."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.block_pool = BlockPool(num_blocks)
        self.block_tables: dict[str, BlockTable] = {}

    @property
    def num_usable_tokens(self) -> int:
        """The longest sequence that the whole pool holds."""
        return self.block_pool.num_usable_blocks * self.block_size

    @property
    def usage(self) -> float:
        return self.block_pool.usage

    def get_computed_blocks(self, request: Request) -> list[KVCacheBlock]:
        """The cached blocks of the longest known prefix; changes nothing. Never the whole sequence: its last token's logits are to be computed."""
        found: list[KVCacheBlock] = []
        if not request.reads_prefix_cache:
            return found
        get_cached = self.block_pool.get_cached
        for block_hash in request.sequence.block_hashes[: (request.num_tokens - 1) // self.block_size]:
            block = get_cached(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def admit(self, request: Request, computed_blocks: list[KVCacheBlock], num_new_tokens: int, num_kept_free: int = 0) -> list[int] | None:
        """Gives a waiting request a block table: `computed_blocks`, then blocks for `num_new_tokens` more. Returns all its block ids.

        None, and nothing changed, where the whole sequence as it is now would not fit, `num_kept_free` blocks left over: a prompt that is begun can be
        finished.
        """
        pool = self.block_pool
        num_computed_blocks = len(computed_blocks)
        num_idle_blocks = sum(block.ref_cnt == 0 for block in computed_blocks)  # on the free queue: using them takes them off it
        if self._num_blocks_for(request.num_tokens) - num_computed_blocks + num_idle_blocks + num_kept_free > pool.num_free_blocks:
            return None
        pool.touch(computed_blocks)
        table = BlockTable(list(computed_blocks), num_computed_blocks)
        self.block_tables[request.request_id] = table
        num_tokens = num_computed_blocks * self.block_size + num_new_tokens
        table.blocks += pool.allocate(self._num_blocks_for(num_tokens) - num_computed_blocks)
        self._cache_full_blocks(request, table, num_tokens // self.block_size)
        return [block.block_id for block in table.blocks]

    def allocate_slots(self, request: Request, num_new_tokens: int) -> list[int] | None:
        """Room for the next `num_new_tokens` of a running request: the ids of the blocks added. None, and nothing changed, where there is none."""
        table = self.block_tables[request.request_id]
        num_tokens = request.num_computed_tokens + num_new_tokens
        new_block_ids: list[int] = []
        if num_tokens > len(table.blocks) * self.block_size:
            num_missing_blocks = self._num_blocks_for(num_tokens) - len(table.blocks)
            if num_missing_blocks > self.block_pool.num_free_blocks:
                return None
            added = self.block_pool.allocate(num_missing_blocks)
            table.blocks += added
            new_block_ids = [block.block_id for block in added]
        # Of a token that a step under way has yet to sample nobody knows the hash.
        num_full_blocks = (num_tokens if num_tokens < request.num_tokens else request.num_tokens) // self.block_size
        if num_full_blocks > table.num_cached_blocks:
            self._cache_full_blocks(request, table, num_full_blocks)
        return new_block_ids

    def cache_known_blocks(self, request: Request) -> None:
        """Blocks whose tokens became known after their slots were given: for a request that has no further step in which to cache them."""
        table = self.block_tables.get(request.request_id)
        if table is not None:
            self._cache_full_blocks(request, table, min(request.num_computed_tokens, request.num_tokens) // self.block_size)

    def free(self, request: Request) -> None:
        """Takes the block table away; full blocks stay in the prefix cache until they are reused. A request without one has nothing to free."""
        table = self.block_tables.pop(request.request_id, None)
        if table is not None:
            self.block_pool.free(table.blocks)

    def uncache(self, request: Request, num_valid_tokens: int) -> None:
        """The KV of this request is not what its hashes say from position `num_valid_tokens` on: those blocks leave the prefix cache."""
        table = self.block_tables[request.request_id]
        num_valid_blocks = num_valid_tokens // self.block_size
        for block in table.blocks[num_valid_blocks : table.num_cached_blocks]:
            self.block_pool.uncache(block)
        table.num_cached_blocks = min(table.num_cached_blocks, num_valid_blocks)

    def forget(self, request: Request) -> None:
        """Whatever made a step of this request fail may be in its blocks, also where it has given them back: they leave the prefix cache."""
        for block_hash in request.sequence.block_hashes:
            block = self.block_pool.get_cached(block_hash)
            if block is not None:
                self.block_pool.uncache(block)

    def reset_prefix_cache(self) -> bool:
        """Forgets every cached block; False, and nothing changed, while a block is in use."""
        return self.block_pool.reset_cache()

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _cache_full_blocks(self, request: Request, table: BlockTable, num_full_blocks: int) -> None:
        """Cached when their slots are given, before the step that fills them: another request of that step may already share them."""
        sequence = request.sequence
        if not sequence.is_hashed or num_full_blocks <= table.num_cached_blocks:
            return
        if len(sequence.block_hashes) < num_full_blocks:
            sequence.hash_full_blocks()
        for index in range(table.num_cached_blocks, num_full_blocks):
            self.block_pool.cache(table.blocks[index], sequence.block_hashes[index])
        table.num_cached_blocks = num_full_blocks
