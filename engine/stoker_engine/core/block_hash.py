"""BlockHasher: the prefix cache's keys. A block's hash covers every token up to the block's end, through the hash of the block before it."""

import hashlib
import os
from array import array

from stoker_engine.errors import ParameterError

SEED_BYTES = 32

CACHE_SALT_TAG = b"\x01"
"""Each kind of extra key has a tag of its own, so that equal strings of different kinds never collide."""


def encode_extra_key(tag: bytes, value: str) -> bytes:
    """Tag, length and bytes: no two lists of keys have the same encoding."""
    data = value.encode()
    return tag + len(data).to_bytes(8, "little") + data


class BlockHasher:
    """sha256 chain over blocks of `block_size` token ids, seeded with random bytes: the hashes of another process cannot be predicted."""

    __slots__ = ("_block_size", "_seed")

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._seed = os.urandom(SEED_BYTES)

    def root(self, cache_salt: str | None) -> bytes:
        """What takes the place of a parent's hash before block 0. Requests share blocks only where their roots are equal."""
        if cache_salt is None:
            return self._seed
        return hashlib.sha256(self._seed + encode_extra_key(CACHE_SALT_TAG, cache_salt)).digest()

    def __call__(self, block_hashes: list[bytes], root: bytes, token_ids: list[int]) -> None:
        """Appends the hashes of the full blocks of `token_ids` that `block_hashes` lacks. Raises ParameterError for an id outside 32 bits."""
        block_size = self._block_size
        first = len(block_hashes)
        num_full_blocks = len(token_ids) // block_size
        if first >= num_full_blocks:
            return
        try:
            data = array("I", token_ids[first * block_size : num_full_blocks * block_size]).tobytes()
        except OverflowError as error:
            raise ParameterError("token ids must be between 0 and 2**32 - 1", "prompt") from error
        parent = block_hashes[-1] if block_hashes else root
        num_bytes = len(data) // (num_full_blocks - first)
        for start in range(0, len(data), num_bytes):
            parent = hashlib.sha256(parent + data[start : start + num_bytes]).digest()
            block_hashes.append(parent)
