"""Ids of responses: they tell whose model has made one to who knows the model's name, and cannot be guessed."""

import hashlib
import re
import secrets

_ID = re.compile(r"resp_[0-9a-f]{48}")


def new_response_id(served_name: str) -> str:
    """With 160 random bits: whoever has it may read what is kept."""
    return f"{_prefix(served_name)}{secrets.token_hex(20)}"


def is_response_of(response_id: str, served_name: str) -> bool:
    return response_id.startswith(_prefix(served_name)) and _ID.fullmatch(response_id) is not None


def _prefix(served_name: str) -> str:
    return f"resp_{hashlib.blake2s(served_name.encode(), digest_size=4).hexdigest()}"
