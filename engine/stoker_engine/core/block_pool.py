"""BlockPool: every block of the KV cache, who may be reused next, and which block holds which content."""

from collections.abc import Iterable, Sequence

NULL_BLOCK_ID = 0
"""Never handed out: it stands for positions that have no block."""


class KVCacheBlock:
    """One block. `ref_cnt` counts the block tables it is in; `block_hash` is set while the prefix cache may hand it out."""

    __slots__ = ("block_hash", "block_id", "next_free", "previous_free", "ref_cnt")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None
        self.previous_free: KVCacheBlock | None = None
        self.next_free: KVCacheBlock | None = None

    def __repr__(self) -> str:
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt}, cached={self.block_hash is not None})"


class FreeKVCacheBlockQueue:
    """Doubly linked through the blocks themselves, so that a block in the middle leaves in O(1). The front is reused next."""

    __slots__ = ("_ends", "num_free_blocks")

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        # One block that belongs to no pool closes the ring: its next is the front, its previous the tail.
        self._ends = KVCacheBlock(-1)
        self._ends.previous_free = self._ends.next_free = self._ends
        for block in blocks:
            self.append(block)

    def popleft(self) -> KVCacheBlock:
        """The front. Raises IndexError where nothing is free."""
        block = self._ends.next_free
        if block is None or block is self._ends:
            raise IndexError("no free block")
        self.remove(block)
        return block

    def append(self, block: KVCacheBlock) -> None:
        """To the tail: reused last."""
        self._insert(block, self._ends.previous_free, self._ends)

    def prepend(self, block: KVCacheBlock) -> None:
        """To the front: reused next."""
        self._insert(block, self._ends, self._ends.next_free)

    def remove(self, block: KVCacheBlock) -> None:
        previous, following = block.previous_free, block.next_free
        assert previous is not None and following is not None, f"{block} is not free"
        previous.next_free = following
        following.previous_free = previous
        block.previous_free = block.next_free = None
        self.num_free_blocks -= 1

    def blocks(self) -> list[KVCacheBlock]:
        """All of them, the front first; O(n), for tests and logs."""
        found = []
        block = self._ends.next_free
        while block is not None and block is not self._ends:
            found.append(block)
            block = block.next_free
        return found

    def _insert(self, block: KVCacheBlock, previous: KVCacheBlock | None, following: KVCacheBlock | None) -> None:
        assert previous is not None and following is not None and block.next_free is None, f"{block} is already free"
        block.previous_free, block.next_free = previous, following
        previous.next_free = following.previous_free = block
        self.num_free_blocks += 1


class BlockPool:
    """`num_blocks` blocks, block 0 being the null block. At most one block is cached per hash: the one that was filled last."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self.free_queue = FreeKVCacheBlockQueue(self.blocks[NULL_BLOCK_ID + 1 :])
        self.cached_blocks: dict[bytes, KVCacheBlock] = {}

    @property
    def num_usable_blocks(self) -> int:
        return len(self.blocks) - 1

    @property
    def num_free_blocks(self) -> int:
        return self.free_queue.num_free_blocks

    @property
    def usage(self) -> float:
        """The share of usable blocks that requests hold, 0 to 1."""
        if not self.num_usable_blocks:
            return 0.0
        return 1.0 - self.num_free_blocks / self.num_usable_blocks

    def allocate(self, num_blocks: int) -> list[KVCacheBlock]:
        """Takes blocks from the front of the free queue; what they cached is forgotten. The caller has checked that there are enough."""
        taken = []
        for _ in range(num_blocks):
            block = self.free_queue.popleft()
            if block.block_hash is not None:
                self._forget(block)
            block.ref_cnt = 1
            taken.append(block)
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """One more block table holds each of `blocks`; what was free no longer is."""
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_queue.remove(block)
            block.ref_cnt += 1

    def free(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One block table of `blocks`, in its order, lets go.

        From its end: the tail of a sequence is reused before its beginning, on which more depends. A block with no cached content goes to the
        front of the free queue, since nothing is lost with it.
        """
        for block in reversed(blocks):
            block.ref_cnt -= 1
            if block.ref_cnt:
                continue
            if block.block_hash is None:
                self.free_queue.prepend(block)
            else:
                self.free_queue.append(block)

    def cache(self, block: KVCacheBlock, block_hash: bytes) -> None:
        """`block` is full and holds the content of `block_hash` from now on, in place of any block that held it before."""
        older = self.cached_blocks.get(block_hash)
        if older is not None:
            self.uncache(older)
        block.block_hash = block_hash
        self.cached_blocks[block_hash] = block

    def uncache(self, block: KVCacheBlock) -> None:
        """Takes a block out of the prefix cache; whoever holds it keeps it."""
        if block.block_hash is None:
            return
        self._forget(block)
        if block.ref_cnt == 0:
            self.free_queue.remove(block)
            self.free_queue.prepend(block)

    def get_cached(self, block_hash: bytes) -> KVCacheBlock | None:
        return self.cached_blocks.get(block_hash)

    def reset_cache(self) -> bool:
        """Forgets all cached content; False, and nothing changed, while a block is in use."""
        if self.num_free_blocks != self.num_usable_blocks:
            return False
        for block in self.cached_blocks.values():
            block.block_hash = None
        self.cached_blocks.clear()
        return True

    def _forget(self, block: KVCacheBlock) -> None:
        if block.block_hash is not None:
            del self.cached_blocks[block.block_hash]
            block.block_hash = None
