import hashlib
import struct

import pytest

from stoker_engine.core.block_hash import CACHE_SALT_TAG, BlockHasher, encode_extra_key
from stoker_engine.errors import ParameterError


def hashes_of(hasher: BlockHasher, token_ids: list[int], salt: str | None = None) -> list[bytes]:
    block_hashes: list[bytes] = []
    hasher(block_hashes, hasher.root(salt), token_ids)
    return block_hashes


@pytest.mark.property("P6")
def test_a_hash_is_the_sha256_of_its_parent_and_its_tokens() -> None:
    hasher = BlockHasher(4)
    first, second = hashes_of(hasher, list(range(10)))
    assert first == hashlib.sha256(hasher.root(None) + struct.pack("4I", 0, 1, 2, 3)).digest()
    assert second == hashlib.sha256(first + struct.pack("4I", 4, 5, 6, 7)).digest()


@pytest.mark.property("P7")
def test_only_full_blocks_have_hashes() -> None:
    hasher = BlockHasher(4)
    assert [len(hashes_of(hasher, list(range(length)))) for length in (1, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_hashes_grow_with_the_sequence_as_if_made_at_once() -> None:
    hasher = BlockHasher(4)
    grown: list[bytes] = []
    for length in range(1, 20):
        hasher(grown, hasher.root("salt"), list(range(length)))
    assert grown == hashes_of(hasher, list(range(19)), "salt")


@pytest.mark.property("P15")
def test_a_difference_shows_in_its_block_and_all_after_it() -> None:
    hasher = BlockHasher(4)
    one, other = hashes_of(hasher, list(range(12))), hashes_of(hasher, [0, 1, 2, 3, 99, 5, 6, 7, 8, 9, 10, 11])
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]


@pytest.mark.property("P15")
def test_salts_part_the_cache_from_the_first_block_on() -> None:
    hasher = BlockHasher(4)
    roots = {hasher.root(salt) for salt in (None, "", "a", "b", "aa")}
    assert len(roots) == 5


@pytest.mark.fault("E1")
def test_equal_strings_of_different_kinds_of_key_have_different_encodings() -> None:
    assert encode_extra_key(CACHE_SALT_TAG, "x") != encode_extra_key(b"\x02", "x")
    assert encode_extra_key(b"\x01", "ab") + encode_extra_key(b"\x01", "c") != encode_extra_key(b"\x01", "a") + encode_extra_key(b"\x01", "bc")


@pytest.mark.fault("E2")
def test_each_hasher_has_its_own_secret_seed() -> None:
    assert hashes_of(BlockHasher(4), [1, 2, 3, 4]) != hashes_of(BlockHasher(4), [1, 2, 3, 4])
    assert len(BlockHasher(4).root(None)) == 32


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_an_id_that_cannot_be_a_token_is_refused(token_id: int) -> None:
    with pytest.raises(ParameterError, match="token ids must be between 0 and"):
        hashes_of(BlockHasher(4), [1, 2, 3, token_id])
