"""The API server's audit log: who wrote what."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Write:
    """One answered create, update, patch or delete; `code` is the HTTP status of the answer."""

    received: datetime
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int


def writes(path: Path, since: datetime, user: str) -> list[Write]:
    """The user's writes that arrived at or after `since` (with a time zone), oldest first."""
    with path.open(encoding="utf-8") as lines:
        # The server may be in the middle of the last line.
        found = [_write(json.loads(line)) for line in lines if line.endswith("\n")]
    return [write for write in found if write.user == user and write.received >= since]


def _write(event: dict[str, object]) -> Write:
    target, user, answer = (_mapping(event, key) for key in ("objectRef", "user", "responseStatus"))
    return Write(
        received=datetime.fromisoformat(str(event["requestReceivedTimestamp"])),
        user=str(user.get("username", "")),
        verb=str(event["verb"]),
        resource=str(target.get("resource", "")),
        subresource=str(target.get("subresource", "")),
        namespace=str(target.get("namespace", "")),
        name=str(target.get("name", "")),
        code=int(str(answer.get("code", 0))),
    )


def _mapping(event: dict[str, object], key: str) -> dict[str, object]:
    value = event.get(key)
    return value if isinstance(value, dict) else {}
