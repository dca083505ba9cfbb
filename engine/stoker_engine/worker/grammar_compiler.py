"""GrammarCompiler: a kind and a value → a compiled grammar, serialized. Runs in grammar_server.py's process."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import xgrammar

from stoker_engine.tokenizer import load_tokenizer
from stoker_engine.worker.grammar_server import NO_MEMORY, TOKENIZER
from stoker_engine.worker.json_schema_checks import check_schema, check_tag_schemas

MAX_WHITESPACE = 8
"""Characters between two parts of JSON. Without a limit, small models write spaces until their tokens are used up."""
MAX_REASON_CHARACTERS = 500

_NO_TEXT = b"\xff"
"""The bytes of a special token: no text has them, so that a grammar has to name the token. One without bytes could not even be named."""
_JSON_OBJECT = '{"type":"object"}'
_LOOSE, _STRICT = r"[^\"\\\r\n]", r"[^\0-\x1f\"\\]"
"""The characters of a string with a length, as the compiler writes them and as JSON has them."""
_BYTE_ESCAPE = re.compile(r"\\\\|\\x([0-9a-f]{2})")
"""Written with two digits, it is read with as many as follow. An escaped backslash is none."""
_PLACE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: (Check failed: \(.*?\) is false: )?")
_WARNING = re.compile(r"Warning: (.*)")


class UnsupportedGrammarError(ValueError):
    """The grammar is well-formed, and asks for something that the compiler leaves out."""


class GrammarCompiler:
    def __init__(self, model: Path, vocab_size: int) -> None:
        """model: its files hold the tokenizer. vocab_size: ids from there on are never sampled. Raises ModelLoadError."""
        tokenizer = load_tokenizer(model)
        special = tokenizer.special_token_ids
        vocabulary = [_NO_TEXT if token_id in special else tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
        ends = [token_id for token_id in tokenizer.eos_token_ids if token_id < vocab_size]
        self._tokenizer = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, vocab_size=vocab_size, stop_token_ids=ends)
        self._compiler = xgrammar.GrammarCompiler(self._tokenizer, max_threads=1, cache_enabled=False)

    def run(self, kind: str, value: str) -> bytes:
        """Raises ValueError or RuntimeError with the reason why there is no such grammar, MemoryError without one."""
        if kind == TOKENIZER:
            return self._tokenizer.serialize_json().encode()
        try:
            with _warnings_refused():
                grammar = _make_grammar(kind, value)
                return self._compiler.compile_grammar(grammar).serialize_json().encode()
        except RuntimeError as error:
            if NO_MEMORY in str(error):
                raise MemoryError from None
            raise UnsupportedGrammarError(_PLACE.sub("", str(error)).strip()[:MAX_REASON_CHARACTERS]) from None


def _make_grammar(kind: str, value: str) -> xgrammar.Grammar:
    match kind:
        case "json_object":
            return _json_grammar(_JSON_OBJECT)
        case "json":
            check_schema(msgspec.json.decode(value))
            return _json_grammar(value)
        case "regex":
            return xgrammar.Grammar.from_regex(value)
        case "choice":
            return xgrammar.Grammar.from_ebnf("root ::= " + " | ".join(map(_quoted, msgspec.json.decode(value, type=list[str]))))
        case "grammar":
            return xgrammar.Grammar.from_ebnf(value) if "::=" in value else xgrammar.Grammar.from_lark(value)
        case "structural_tag":
            tag: Any = msgspec.json.decode(value)
            check_tag_schemas(tag)
            return _with_json_strings(xgrammar.Grammar.from_structural_tag(value))
    raise UnsupportedGrammarError(f"{kind} is no kind of structured output")


def _json_grammar(schema: str) -> xgrammar.Grammar:
    """Properties in the schema's order, and none that it does not name where it names some."""
    return _with_json_strings(xgrammar.Grammar.from_json_schema(schema, strict_mode=True, max_whitespace_cnt=MAX_WHITESPACE))


def _with_json_strings(grammar: xgrammar.Grammar) -> xgrammar.Grammar:
    """Strings whose length is bounded get no control characters, which JSON would have to escape."""
    text = str(grammar)
    if _LOOSE not in text:
        return grammar
    return xgrammar.Grammar.from_ebnf(_BYTE_ESCAPE.sub(_widened, text.replace(_LOOSE, _STRICT)))


def _widened(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else f"\\u00{escape[1]}"


def _quoted(text: str) -> str:
    return '"' + "".join(character if character.isalnum() or character == " " else f"\\U{ord(character):08x}" for character in text) + '"'


@contextmanager
def _warnings_refused() -> Iterator[None]:
    """What the compiler leaves out it says on the standard error alone. Raises UnsupportedGrammarError with its words."""
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
        file.seek(0)
        warning = _WARNING.search(file.read().decode(errors="replace"))
    if warning is not None:
        raise UnsupportedGrammarError(warning[1][:MAX_REASON_CHARACTERS])
