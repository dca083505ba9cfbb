"""How a vocabulary spells bytes: token string → the bytes that the token adds to a text.

Byte-level vocabularies write each byte as one printable character (GPT-2), SentencePiece ones write a space as ▁ and an odd byte as <0xNN>.
"""

import re
from collections.abc import Callable

import msgspec
from tokenizers import Tokenizer as Backend

from stoker_engine.errors import ModelLoadError

Spelling = Callable[[str], bytes]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NEUTRAL = {"Fuse", "Strip"}
"""Decoders that change only the two ends of a whole text."""


class _Decoder(msgspec.Struct):
    """One decoder of `tokenizers`, as it serializes itself; fields of the other types are absent."""

    type: str
    decoders: list["_Decoder"] = []
    replacement: str = "▁"
    pattern: dict[str, str] = {}
    content: str = ""
    prefix: str = "##"
    suffix: str = "</w>"


def printable_bytes() -> dict[str, int]:
    """The characters with which byte-level vocabularies write the 256 bytes: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def make_spelling(backend: Backend) -> Spelling:
    """The spelling that belongs to the backend's decoder. Raises ModelLoadError for a decoder whose tokens have no bytes of their own."""
    if backend.decoder is None:
        return lambda token: b" " + token.encode()
    root = msgspec.json.decode(backend.decoder.__getstate__(), type=_Decoder)
    parts = {part.type: part for part in (root.decoders or [root])}
    if "ByteLevel" in parts:
        return _byte_level()
    if "WordPiece" in parts:
        return _word_piece(parts["WordPiece"].prefix)
    if "BPEDecoder" in parts:
        suffix = parts["BPEDecoder"].suffix
        return lambda token: (token.removesuffix(suffix) + " ").encode() if token.endswith(suffix) else token.encode()
    unknown = parts.keys() - _NEUTRAL - {"Metaspace", "Replace", "ByteFallback"}
    if unknown:
        raise ModelLoadError(f"tokenizer: decoders of type {', '.join(sorted(unknown))} are not supported")
    space = parts["Metaspace"].replacement if "Metaspace" in parts else parts["Replace"].pattern.get("String", " ") if "Replace" in parts else " "
    return _sentence_piece(space, byte_fallback="ByteFallback" in parts)


def _byte_level() -> Spelling:
    alphabet = printable_bytes()

    def spell(token: str) -> bytes:
        try:
            return bytes([alphabet[character] for character in token])
        except KeyError:  # an added token, which is written as it is
            return token.encode()

    return spell


def _word_piece(prefix: str) -> Spelling:
    return lambda token: token.removeprefix(prefix).encode() if token.startswith(prefix) else b" " + token.encode()


def _sentence_piece(space: str, *, byte_fallback: bool) -> Spelling:
    def spell(token: str) -> bytes:
        if byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(space, " ").encode()

    return spell
