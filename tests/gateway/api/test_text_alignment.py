import random

from stoker_gateway.api.text_alignment import TextAlignment

TOKENS = ["He", "llo", " w", "", "ö\U0001f600", "rl", "d", " d", "END"]
MAX_CHARACTERS = 80
BYTES = [token.encode() for token in TOKENS]


def test_each_token_has_its_text_however_much_of_it_was_shown_before() -> None:
    text = "".join(TOKENS)
    assert TextAlignment(MAX_CHARACTERS).texts(text, BYTES, is_over=True) == TOKENS
    for seed in range(100):
        draw = random.Random(seed)
        alignment, shown, found = TextAlignment(MAX_CHARACTERS), 0, list[str]()
        while len(found) < len(TOKENS):
            num_tokens = draw.randint(len(found), len(TOKENS))
            ahead = draw.randrange(len(TOKENS[num_tokens])) if num_tokens < len(TOKENS) and TOKENS[num_tokens] else 0
            end = max(shown, len("".join(TOKENS[:num_tokens])) + ahead)
            found += alignment.texts(text[shown:end], BYTES[len(found) : num_tokens], is_over=num_tokens == len(TOKENS))
            assert alignment.take_unaligned(is_over=num_tokens == len(TOKENS)) == ""
            shown = end
        assert found == TOKENS


def test_a_character_of_several_tokens_is_the_text_of_the_last() -> None:
    assert TextAlignment(MAX_CHARACTERS).texts("😀!", [bytes([byte]) for byte in "😀!".encode()], is_over=True) == ["", "", "", "😀", "!"]


def test_a_token_that_the_end_cuts_has_what_is_left_of_it() -> None:
    alignment = TextAlignment(MAX_CHARACTERS)
    assert alignment.texts("he", [], is_over=False) == [] and alignment.take_unaligned(is_over=False) == ""
    assert alignment.texts("l", [b"hello"], is_over=True) == ["hel"]


def test_a_token_of_the_longest_text_has_it_though_all_but_its_end_was_shown_before() -> None:
    token = "-" * MAX_CHARACTERS
    alignment = TextAlignment(MAX_CHARACTERS)
    assert alignment.texts("x" + token[:-1], [b"x"], is_over=False) == ["x"] and alignment.take_unaligned(is_over=False) == ""
    assert alignment.texts("-y", [token.encode(), b"y"], is_over=True) == [token, "y"]


def test_text_that_no_token_spells_does_not_wait_for_ever() -> None:
    alignment = TextAlignment(MAX_CHARACTERS)
    assert alignment.texts("other", [b"hello"], is_over=False) == [""] and alignment.take_unaligned(is_over=False) == ""
    assert alignment.texts("!" * 100, [], is_over=False) == []
    assert alignment.take_unaligned(is_over=False) == "other" + "!" * 100
    assert alignment.texts("end", [], is_over=True) == [] and alignment.take_unaligned(is_over=True) == "end"
