"""A short hash of JSON that is the same in every process."""

import hashlib
import json

HASH_LENGTH = 16


def stable_hash(value: object) -> str:
    """Keys may come in any order; lists may not."""
    encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(encoded.encode()).hexdigest()[:HASH_LENGTH]
