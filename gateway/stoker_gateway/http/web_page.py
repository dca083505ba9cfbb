"""A web page that is one file, and asks nobody but the server that it came from."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, frozen=True)
class Page:
    """`headers` let a browser run this page's own script and style, and send what it sends here and nowhere else."""

    body: bytes
    headers: dict[str, str]


def make_page(file: Path, told: Mapping[str, str]) -> Page:
    """The file, with what the page cannot ask for itself in the place of its marks."""
    text = file.read_text(encoding="utf-8")
    policy = _content_security_policy(text)
    for mark, value in told.items():
        text = text.replace(mark, html.escape(value))
    body = text.encode()
    return Page(
        body,
        {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _content_security_policy(text: str) -> str:
    """By hashes of the one script and the one style: what else may come into the page does not run."""
    directives = {
        "default-src": "'none'",
        "script-src": _hash_of("script", text),
        "style-src": _hash_of("style", text),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _hash_of(element: str, text: str) -> str:
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
