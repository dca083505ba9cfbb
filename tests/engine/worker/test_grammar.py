import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from stoker_engine.errors import EngineBusyError, EngineGenerateError, ParameterError
from stoker_engine.protocol import EngineCoreRequest
from stoker_engine.sampling_params import SamplingParams, StructuredOutputs
from stoker_engine.tokenizer import Tokenizer, load_tokenizer
from stoker_engine.worker.bounded_calls import MAX_OVERDUE
from stoker_engine.worker.grammar import XGrammar, XGrammarSource
from stoker_engine.worker.grammar_process import CompileLimits

SCHEMAS = Path(__file__).with_name("schemas.jsonl")
"""Of the public JSON-Schema-Test-Suite: as they are, with a type where they name none, and inside an object."""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "größe": {"type": "integer", "minimum": 0, "maximum": 300},
        "kind": {"enum": ['a"b', "\n", None, 3]},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/friend"}, "maxItems": 3},
    },
    "required": ["name", "größe", "kind", "friends"],
    "$defs": {
        "friend": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"since": {"type": "string", "format": "date"}}, "required": ["since"]}]}
    },
}
CHOICES = ["yes", "no", 'ma"ybe\n', "naïve ☃ 👍"]
READY_SECONDS = 60.0


def wait_until_ready(grammar: XGrammar) -> XGrammar:
    deadline = time.monotonic() + READY_SECONDS
    while not grammar.is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return grammar


class Grammars:
    """Grammars of the real compiler's process, for SmolLM2's vocabulary."""

    def __init__(self, model: Path, limits: CompileLimits | None = None) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(model)
        self.ends = list(self.tokenizer.eos_token_ids)
        self.source = XGrammarSource(model, self.tokenizer.vocab_size, limits)
        self.compiled = threading.Event()
        closers = ['"', "}", "]", *",:0123456789-.truefalsn"]
        self.closers = [token_id for text in closers for token_id in self.tokenizer.encode_chat(text)]

    def start(self, wanted: StructuredOutputs, **fields: Any) -> XGrammar:
        grammar = self.source.compile(EngineCoreRequest("a", [1], SamplingParams(structured_outputs=wanted, **fields), arrival_time=0.0), self.compiled.set)
        assert grammar is not None
        return grammar

    def make(self, kind: Any, value: object = "", **fields: Any) -> XGrammar:
        return wait_until_ready(self.start(StructuredOutputs(kind, value if isinstance(value, str) else json.dumps(value)), **fields))

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode_chat(text)

    def allowed(self, grammar: XGrammar) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        bits = grammar.bitmask()
        assert bits is not None
        return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")

    def walk(self, grammar: XGrammar, seed: int, max_tokens: int = 400) -> str | None:
        """A random output, None where it is cut: what the grammar allows is all that decides. It makes haste to close what is open."""
        rng = random.Random(seed)
        output = b""
        for number in range(max_tokens):
            token_id = self._choose(grammar, rng, in_haste=number > 24)
            assert grammar.accept([token_id])
            output += b"" if token_id in self.ends else self.tokenizer.token_bytes(token_id)
            if grammar.is_terminated():
                return output.decode()
        return None

    def _choose(self, grammar: XGrammar, rng: random.Random, *, in_haste: bool) -> int:
        allowed = self.allowed(grammar)
        for closing in (self.ends, self.closers):
            possible = [token_id for token_id in closing if allowed[token_id]]
            if possible and (in_haste or rng.random() < 0.3):
                return possible[0] if in_haste and rng.random() < 0.7 else rng.choice(possible)
        return int(rng.choice(np.flatnonzero(allowed)))


@pytest.fixture(scope="module")
def grammars(smollm2_path: Path) -> Iterator[Grammars]:
    made = Grammars(smollm2_path)
    yield made
    made.source.close()


def follows(schema: Any) -> Callable[[str], bool]:
    return lambda text: jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


TAG = {"type": "structural_tag", "format": {"type": "tag", "begin": "<call>", "content": {"type": "json_schema", "json_schema": PERSON}, "end": "</call>"}}


@pytest.mark.parametrize(
    ("kind", "value", "is_right"),
    [
        ("json", PERSON, follows(PERSON)),
        ("json", {}, follows({})),
        ("json_object", "", follows({"type": "object"})),
        ("regex", r"[a-f0-9]{4}(-[x-z]+)?", lambda text: re.fullmatch(r"[a-f0-9]{4}(-[x-z]+)?", text)),
        ("choice", CHOICES, CHOICES.__contains__),
        ("grammar", 'root ::= "a" root "b" | "c"', lambda text: re.fullmatch("a*cb*", text) and text.count("a") == text.count("b")),
        ("grammar", 'start: "x" NUMBER\nNUMBER: /[0-9]+/', lambda text: re.fullmatch("x[0-9]+", text)),
        ("structural_tag", TAG, lambda text: follows(PERSON)(text.removeprefix("<call>").removesuffix("</call>"))),
    ],
)
def test_every_complete_output_has_the_form(grammars: Grammars, kind: str, value: object, is_right: Callable[[str], bool]) -> None:
    outputs = [grammars.walk(grammars.make(kind, value), seed) for seed in range(6)]
    complete = [output for output in outputs if output is not None]
    assert complete and all(is_right(output) for output in complete), complete


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("json", {"type": "banana"}, 'Unsupported type "banana"'),
        ("json", {"type": "array", "uniqueItems": True}, "#: uniqueItems is not supported"),
        ("json", {"allOf": [{"type": "integer"}, {"type": "integer", "minimum": 5}]}, "Support for allOf with multiple options is still ongoing"),
        ("json", {"$ref": "#/$defs/a"}, "Cannot find field '$defs' in #/$defs/a"),
        ("regex", "(a", "Regex parsing error at position 3: The parenthesis is not closed."),
        ("regex", r"(a)\1", "Regex parsing error at position 4: Backreference is not supported yet."),
        ("grammar", "root ::= x", 'EBNF parser error at line 1, column 10: Rule "x" is not defined'),
        ("structural_tag", {"type": "structural_tag"}, "Invalid structural tag error: Structural tag must have a format field"),
    ],
)
@pytest.mark.fault("C1")
def test_a_wrong_grammar_is_refused_with_the_compilers_reason(grammars: Grammars, kind: str, value: object, reason: str) -> None:
    with pytest.raises(ParameterError) as error:
        grammars.make(kind, value)
    assert reason in str(error.value) and error.value.parameter == "structured_outputs"


def test_the_end_is_allowed_only_where_the_output_may_end(grammars: Grammars) -> None:
    grammar = grammars.make("regex", "[0-9]{2,3}")
    (end,), digit = grammars.ends, grammars.encode("7")
    for is_end_allowed in (0, 0, 1):
        assert grammars.allowed(grammar)[end] == is_end_allowed and not grammar.is_terminated()
        assert grammar.accept(digit)
    assert grammar.is_terminated()


def test_an_output_that_may_go_on_does_where_ends_are_ignored(grammars: Grammars) -> None:
    grammar = grammars.make("regex", "[0-9]{1,2}", ignore_eos=True)
    assert grammar.accept(grammars.encode("7"))
    assert not grammars.allowed(grammar)[grammars.ends[0]] and not grammar.is_terminated()
    assert grammar.accept(grammars.encode("7"))
    assert grammar.is_terminated()


def test_special_tokens_are_no_part_of_a_text(grammars: Grammars) -> None:
    grammar = grammars.make("regex", "[^z]*")
    special = grammars.tokenizer.special_token_ids - set(grammars.ends)
    assert special and not any(grammars.allowed(grammar)[token_id] for token_id in special)


@pytest.mark.fault("C6")
def test_the_form_begins_at_the_very_token_after_those_it_waits_for(grammars: Grammars) -> None:
    after = grammars.encode("</think>")
    grammar = wait_until_ready(grammars.start(StructuredOutputs("choice", '["yes"]', after)))
    yes = grammars.encode("yes")
    for token_id in [*yes, *after[:-1], after[0], *after]:
        assert grammar.bitmask() is None and not grammar.is_terminated()
        assert grammar.accept([token_id])
    assert not grammar.is_terminated() and not grammar.accept(grammars.encode("no"))
    assert grammar.accept(yes) and grammar.is_terminated()


def test_an_output_that_does_not_begin_as_it_may_has_its_form_at_once(grammars: Grammars) -> None:
    (start,), (end,), yes = grammars.encode("<file_sep>"), grammars.encode("<reponame>"), grammars.encode("yes")
    wanted = StructuredOutputs("choice", '["yes"]', [end], start_token_id=start)
    with_start, without = (wait_until_ready(grammars.start(wanted)) for _ in range(2))
    assert grammars.allowed(with_start).nonzero()[0].tolist() == sorted([start, *grammars.allowed(grammars.make("choice", ["yes"])).nonzero()[0]])
    assert with_start.accept([start]) and with_start.bitmask() is None
    assert with_start.accept([*yes, end]) and not grammars.allowed(with_start)[start]
    assert with_start.accept(yes) and with_start.is_terminated()
    assert without.accept(yes) and without.is_terminated()
    with pytest.raises(ParameterError, match="allows no output"):
        wait_until_ready(grammars.start(StructuredOutputs("regex", "", [end], start_token_id=start)))


@pytest.mark.parametrize("pattern", ["told", "(told"])
def test_who_waits_is_told_when_a_grammar_is_there_or_cannot_be(grammars: Grammars, pattern: str) -> None:
    for _ in range(2):  # the second time, what can be is there already
        grammars.compiled.clear()
        grammar = grammars.start(StructuredOutputs("regex", pattern))
        assert grammars.compiled.wait(READY_SECONDS)
        with suppress(ParameterError):
            assert grammar.is_ready()


def test_each_request_has_a_matcher_of_its_own(grammars: Grammars) -> None:
    first, second = grammars.make("regex", "ab"), grammars.make("regex", "ab")
    assert first.accept(grammars.encode("a"))
    assert first.bitmask() != second.bitmask()
    assert not second.accept(grammars.encode("b"))


def be_too_ambiguous(grammars: Grammars, grammar: XGrammar) -> None:
    longest = max((grammars.tokenizer.token_bytes(token_id), token_id) for token_id in range(grammars.tokenizer.vocab_size) if is_blank(grammars, token_id))[1]
    with pytest.raises(ParameterError, match="too ambiguous"):
        for _ in range(3):
            assert grammar.accept([longest])


AMBIGUOUS = 'root ::= e\ne ::= " " | ' + " | ".join("e " * number for number in range(2, 6))


def test_a_single_token_that_takes_too_long_to_follow_holds_nobody_up(grammars: Grammars) -> None:
    be_too_ambiguous(grammars, grammars.make("grammar", AMBIGUOUS))
    other = grammars.make("regex", "ab")
    assert other.accept(grammars.encode("ab")) and other.is_terminated()


@pytest.mark.stress
def test_while_ambiguous_grammars_take_their_time_only_new_ones_that_may_be_are_told_to_come_again(smollm2_path: Path) -> None:
    grammars = Grammars(smollm2_path)
    ambiguous = [grammars.make("grammar", AMBIGUOUS) for _ in range(MAX_OVERDUE)]
    begun = grammars.make("regex", "ab")
    for grammar in ambiguous:
        be_too_ambiguous(grammars, grammar)
    assert begun.accept(grammars.encode("a")) and begun.accept(grammars.encode("b")) and begun.is_terminated()
    assert grammars.make("structural_tag", TAG).accept(grammars.encode("<"))
    with pytest.raises(EngineBusyError, match="try again later"):
        grammars.make("regex", "ab")
    grammars.source.close()


def is_blank(grammars: Grammars, token_id: int) -> bool:
    text = grammars.tokenizer.token_bytes(token_id)
    return bool(text) and not text.strip(b" ")


@pytest.mark.stress
def test_a_grammar_that_is_costly_to_follow_fails_its_request(grammars: Grammars) -> None:
    grammar = grammars.make("regex", "((a{1,60}){1,60}){1,60}")
    letter = grammars.encode("a")
    with pytest.raises(ParameterError, match="too ambiguous"):
        for _ in range(2000):
            grammar.accept(letter)


@pytest.mark.stress
def test_grammars_that_nobody_waits_for_any_more_are_not_compiled_to_the_end(smollm2_path: Path) -> None:
    before = compilers()
    grammars = Grammars(smollm2_path, CompileLimits(cpu_seconds=600.0))
    grammars.make("regex", "a")
    (server,) = compilers() - before
    costly = 'root ::= e\ne ::= "" | [ -~] | ' + " | ".join("e " * number for number in range(2, 12))
    wanted = [grammars.start(StructuredOutputs("grammar", costly + f' | "{number}"')) for number in range(2)]
    wait_until(lambda: len(children_of(server)) == 2)
    wanted.clear()
    wait_until(lambda: not children_of(server))
    assert grammars.make("regex", "b").bitmask()
    grammars.source.close()


def children_of(pid: int) -> set[int]:
    return {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()}


def compilers() -> set[int]:
    return {pid for pid in children_of(os.getpid()) if b"grammar_server" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.fault("C4")
@pytest.mark.stress
def test_a_grammar_that_takes_too_much_is_refused_and_the_next_one_is_compiled(smollm2_path: Path) -> None:
    grammars = Grammars(smollm2_path, CompileLimits(cpu_seconds=1.0, memory_bytes=256 << 20, compiled_bytes=8 << 20))
    for kind, value, reason in (
        ("json", {"type": "string", "pattern": "^(a|b|c){0,5000}$"}, "it is too complex"),
        ("json", {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(2000)}}, "it is too complex"),
        ("json", {"enum": ["x" * 50 + str(number) for number in range(2000)]}, "it is too"),
    ):
        with pytest.raises(ParameterError, match=reason):
            grammars.make(kind, value)
        assert grammars.make("regex", "a").bitmask()
    grammars.source.close()
    with pytest.raises(EngineGenerateError, match="cannot be compiled"):
        grammars.make("regex", "closed")


@pytest.mark.stress
def test_the_compiler_is_started_again_where_it_has_ended(smollm2_path: Path) -> None:
    before = compilers()
    grammars = Grammars(smollm2_path)
    grammars.make("regex", "a")
    (server,) = compilers() - before
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: Path(f"/proc/{server}/stat").read_text().rpartition(") ")[2].startswith("Z"))
    assert grammars.make("regex", "b").bitmask()
    grammars.source.close()


def read_schemas() -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in SCHEMAS.read_text(encoding="utf-8").splitlines()]


def check_schemas(grammars: Grammars, rows: Sequence[dict[str, Any]], num_seeds: int) -> tuple[int, int]:
    """How many schemas were taken, and how many outputs were complete; each of those is valid."""
    num_taken = num_complete = 0
    for row in rows:
        try:
            outputs = [grammars.walk(grammars.make("json", row["schema"]), seed) for seed in range(num_seeds)]
        except ParameterError as error:
            assert str(error).startswith("structured_outputs: "), row
            continue
        num_taken += 1
        complete = [output for output in outputs if output is not None]
        num_complete += len(complete)
        assert all(follows(row["schema"])(output) for output in complete), (row, complete)
    return num_taken, num_complete


def test_outputs_follow_some_schemas_of_the_public_test_suite(grammars: Grammars) -> None:
    num_taken, num_complete = check_schemas(grammars, read_schemas()[::200], 1)
    assert num_taken >= 1 and num_complete >= 1


@pytest.mark.stress
def test_outputs_follow_all_schemas_of_the_public_test_suite(grammars: Grammars) -> None:
    num_taken, num_complete = check_schemas(grammars, read_schemas(), 5)
    assert num_taken >= 300 and num_complete >= 0.98 * 5 * num_taken
