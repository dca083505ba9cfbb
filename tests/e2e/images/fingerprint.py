"""What something is built of, in a few characters: equal ones need no build."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def fingerprint(*parts: str | Path) -> str:
    """12 hex digits of the texts, and of the names and bytes of the files and folders."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"text {len(part)}\0{part}".encode())
        else:
            for path in _files(part):
                content = path.read_bytes()
                digest.update(f"file {path.relative_to(part.parent)} {len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()[:12]


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
