"""Messages and times as a status has them: bounded, one line each, in UTC."""

from datetime import UTC, datetime

MAX_MESSAGE_BYTES = 1024


def one_line(text: str) -> str:
    """Without line breaks and control characters, at most MAX_MESSAGE_BYTES of UTF-8, the rest cut."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    encoded = line.encode(errors="replace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def last_line(text: str) -> str:
    """Of several lines, the last that says something: where a log ends with an error, that is the error."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""


def timestamp(moment: datetime) -> str:
    """As Kubernetes writes a time: in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
