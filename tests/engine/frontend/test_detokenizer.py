from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stoker_engine.frontend.detokenizer import Detokenizer
from stoker_engine.sampling_params import ReasoningSpan, SamplingParams
from stoker_engine.tokenizer import Tokenizer

MakeTokenizer = Callable[[Sequence[bytes]], Tokenizer]


class Run:
    """What a detokenizer showed after each token of a text."""

    def __init__(self, tokenizer: Tokenizer, token_ids: Sequence[int], **params: Any) -> None:
        detokenizer = Detokenizer(tokenizer, [0], SamplingParams(max_tokens=1000, **params))
        self.deltas: list[str] = []
        self.num_shown: list[int] = []
        self.stop: str | None = None
        for token_id in token_ids:
            self.stop = detokenizer.append([token_id])
            self.deltas.append(detokenizer.take_text())
            self.num_shown.append(detokenizer.num_shown_tokens)
            if self.stop is not None:
                return
        detokenizer.finish()
        self.deltas.append(detokenizer.take_text())
        self.num_shown.append(detokenizer.num_shown_tokens)

    @property
    def text(self) -> str:
        return "".join(self.deltas)


@pytest.fixture
def run_tokens(make_tokenizer: MakeTokenizer) -> Callable[..., Run]:
    """Runs texts as one token each."""

    def run(*tokens: str, **params: Any) -> Run:
        vocabulary = sorted({token.encode() for token in tokens})
        return Run(make_tokenizer(vocabulary), [vocabulary.index(token.encode()) for token in tokens], **params)

    return run


@pytest.mark.case("C020")
def test_characters_split_over_tokens_come_out_whole_and_hold_back_nothing_before_them(byte_tokenizer: Tokenizer) -> None:
    run = Run(byte_tokenizer, list("hi😀é漢!".encode()))
    assert run.deltas == ["h", "i", "", "", "", "😀", "", "é", "", "", "漢", "!", ""]


@pytest.mark.case("C020")
def test_an_incomplete_character_at_the_end_is_one_replacement_character(byte_tokenizer: Tokenizer) -> None:
    assert Run(byte_tokenizer, list("hi😀".encode()[:4])).text == "hi\ufffd"


def test_bytes_that_are_no_character_are_replaced_and_do_not_block_the_text(byte_tokenizer: Tokenizer) -> None:
    assert Run(byte_tokenizer, [*b"a\xf0\x9f", *b"b\xffc"]).text == b"a\xf0\x9fb\xffc".decode(errors="replace")


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_begun_in_the_prompt_is_completed_by_the_answer(byte_tokenizer: Tokenizer, cut: int) -> None:
    emoji = list("😀".encode())
    detokenizer = Detokenizer(byte_tokenizer, [97, *emoji[:cut]], SamplingParams())
    detokenizer.append([*emoji[cut:], 98])
    assert detokenizer.text() == "😀b"


@pytest.mark.case("C021")
@pytest.mark.parametrize(
    ("tokens", "stop", "text", "matched"),
    [
        (["ab", "cD", "EF", "Gh"], ["DEFG"], "abc", "DEFG"),
        (["ab", "cD", "EF", "Gh"], ["DEFX"], "abcDEFGh", None),
        (["ab", "cD", "EF", "Gh"], ["cD", "DE"], "ab", "cD"),
        (["ab", "cD", "EF", "Gh"], ["h"], "abcDEFG", "h"),
        (["x", "y\nUs", "er", ":z"], ["\nUser:"], "xy", "\nUser:"),
    ],
)
def test_a_stop_string_across_tokens_ends_the_text_before_it(
    run_tokens: Callable[..., Run], tokens: list[str], stop: list[str], text: str, matched: str | None
) -> None:
    run = run_tokens(*tokens, stop=stop)
    assert (run.text, run.stop) == (text, matched)


@pytest.mark.case("C021")
def test_only_an_end_that_begins_a_stop_string_is_held_back(run_tokens: Callable[..., Run]) -> None:
    run = run_tokens("Hello ST", "OP now", stop=["STOP", "END!"])
    assert run.deltas == ["Hello ", ""]
    assert run_tokens("abcS", "TOx", "E", "n", stop=["STOP", "END!"]).deltas == ["abc", "STOx", "", "En", ""]


def test_a_stop_string_that_is_included_ends_the_text_and_holds_nothing_back(run_tokens: Callable[..., Run]) -> None:
    run = run_tokens("Hello ST", "OP now", stop=["STOP", "END!"], include_stop_str_in_output=True)
    assert run.deltas == ["Hello ST", "OP"]


@pytest.mark.fault("G1")
@pytest.mark.parametrize("stop", [["bcd", "abcde"], ["abcde", "bcd"]])
def test_the_stop_string_that_begins_first_wins_whatever_the_list_order(run_tokens: Callable[..., Run], stop: list[str]) -> None:
    run = run_tokens("xabcdef", stop=stop)
    assert (run.text, run.stop) == ("x", "abcde")


@pytest.mark.fault("G1")
@pytest.mark.parametrize("stop", [["ab", "abc"], ["abc", "ab"]])
def test_the_longest_of_stop_strings_that_begin_together_wins(run_tokens: Callable[..., Run], stop: list[str]) -> None:
    run = run_tokens("xabcd", stop=stop, include_stop_str_in_output=True)
    assert (run.text, run.stop) == ("xabc", "abc")


def test_within_min_tokens_no_stop_string_matches(run_tokens: Callable[..., Run]) -> None:
    run = run_tokens("a", "ST", "OP", "b", "c", "d", "e", stop=["STOP"], min_tokens=5)
    assert (run.text, run.stop) == ("aSTOPbcde", None)


def test_after_min_tokens_a_match_needs_a_later_character(run_tokens: Callable[..., Run]) -> None:
    run = run_tokens("a", "ST", "OP", "ST", "O", "P", "x", stop=["STOP"], min_tokens=5)
    assert (run.text, run.stop) == ("aSTOP", "STOP")
    assert run_tokens("ST", "OP", "x", "y", stop=["STOP"], min_tokens=2).stop is None


@pytest.mark.fault("G2", "G6")
def test_ids_are_held_while_their_text_is(run_tokens: Callable[..., Run]) -> None:
    run = run_tokens("a", "bS", "T", "x", "y", stop=["STOP"])
    assert run.deltas == ["a", "b", "", "STx", "y", ""]
    assert run.num_shown == [1, 1, 1, 4, 5, 5]


@pytest.mark.fault("G2")
def test_the_ids_of_an_incomplete_character_are_held_with_it(byte_tokenizer: Tokenizer) -> None:
    assert Run(byte_tokenizer, list("a😀b".encode())).num_shown == [1, 1, 1, 1, 5, 6, 6]


@pytest.mark.fault("G8")
def test_ids_past_the_cut_are_trimmed_and_the_id_on_the_cut_is_kept(run_tokens: Callable[..., Run]) -> None:
    assert run_tokens("ab", "cD", "EF", "Gh", stop=["DEFG"]).num_shown[-1] == 2
    assert run_tokens("ab", "c", "DE", "FGh", stop=["DEFG"]).num_shown[-1] == 2
    assert run_tokens("ab", "c", "DE", "FGh", stop=["DEFG"], include_stop_str_in_output=True).num_shown[-1] == 4


def test_special_tokens_are_skipped_or_shown_as_asked(byte_tokenizer: Tokenizer) -> None:
    tokens = [97, 256, 256, 98]
    assert Run(byte_tokenizer, tokens).text == "ab"
    assert Run(byte_tokenizer, tokens, skip_special_tokens=False).text == "a<s><s>b"


def test_a_skipped_special_token_does_not_break_a_character(byte_tokenizer: Tokenizer) -> None:
    emoji = list("😀".encode())
    assert Run(byte_tokenizer, [*emoji[:2], 256, *emoji[2:]]).text == "😀"


def test_a_silent_last_token_shows_no_text_and_counts_as_shown_at_the_end(byte_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(byte_tokenizer, [0], SamplingParams(stop=["ab"]))
    detokenizer.append([97])
    detokenizer.append_silently()
    assert (detokenizer.text(), detokenizer.num_shown_tokens) == ("", 0)
    detokenizer.finish()
    assert (detokenizer.text(), detokenizer.num_shown_tokens) == ("a", 2)


def test_a_long_answer_keeps_only_what_a_stop_string_may_begin_in(byte_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(byte_tokenizer, [0], SamplingParams(stop=["ab" * 10]))
    for _ in range(2000):
        detokenizer.append([99])
        detokenizer.take_text()
    assert len(detokenizer._tail) <= 19
    assert not detokenizer._held_tokens


THINK = ReasoningSpan("<think>", "</think>")
OPEN = ReasoningSpan("<think>", "</think>", is_open=True)


@pytest.mark.fault("G5")
@pytest.mark.parametrize(
    ("text", "span", "shown", "stop"),
    [
        ("<think>a END b</think>c END d", THINK, "<think>a END b</think>c ", "END"),
        ("\n<think>a END b", THINK, "\n<think>a END b", None),
        ("a END b</think>c END", OPEN, "a END b</think>c ", "END"),
        ("<think>EN</think>D END", THINK, "<think>EN</think>D ", "END"),
        ("<think>x</think>END", THINK, "<think>x</think>", "END"),
        ("no <think>END", THINK, "no <think>", "END"),
        ("END<think>", THINK, "", "END"),
        ("<thiEND", THINK, "<thi", "END"),
        ("  END", THINK, "  ", "END"),
        ("  <thi", THINK, "  <thi", None),
    ],
)
def test_stop_strings_do_not_count_within_reasoning(run_tokens: Callable[..., Run], text: str, span: ReasoningSpan, shown: str, stop: str | None) -> None:
    for size in (1, 2, 3, 5, len(text)):
        run = run_tokens(*(text[start : start + size] for start in range(0, len(text), size)), stop=["END"], reasoning=span)
        assert (run.text, run.stop) == (shown, stop)


def test_reasoning_is_shown_as_it_comes(run_tokens: Callable[..., Run]) -> None:
    assert run_tokens("<think>", "E", "N", "D", stop=["END"], reasoning=THINK).deltas == ["<think>", "E", "N", "D", ""]


def test_a_special_token_that_a_parser_needs_is_kept(smollm2_tokenizer: Tokenizer) -> None:
    (start,), (end,) = smollm2_tokenizer.encode_chat("<|im_start|>"), smollm2_tokenizer.encode_chat("<|im_end|>")
    token_ids = [start, *smollm2_tokenizer.encode_chat("hi"), end]
    assert Run(smollm2_tokenizer, token_ids).text == "hi"
    assert Run(smollm2_tokenizer, token_ids, kept_special_token_ids=[start]).text == "<|im_start|>hi"
