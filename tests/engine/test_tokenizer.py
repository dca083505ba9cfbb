import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stoker_engine.errors import ParameterError
from stoker_engine.tokenizer import Tokenizer, count_token_ids

SENTENCES = [
    "What is the capital of France?",
    "  two leading spaces",
    "trailing spaces   ",
    "a \t tab and\n\n\nnewlines \r\n mixed",
    "I'm sure they'll say it's John's, we've heard",
    "CamelCase snake_case kebab-case SCREAMING_CASE",
    "def f(x: int) -> list[int]:\n    return [x ** 2 for _ in range(10)]\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }",
    '{"key": [1, 2.5, null], "nested": {"a": "b\\n"}}',
    "3.14159 and 1,000,000 and 2024-01-31",
    "emoji 😀🎉 and a family 👨‍👩‍👧‍👦, flags 🇩🇪",
    "漢字とかな交じり文、한국어도 있습니다。",
    "Größe, naïve café, Ångström, ß",
    "Привет, мир! Γειά σου Κόσμε",
    "مرحبا بالعالم שלום עולם",
    "हिन्दी भाषा ไทย",
    "combining e\u0301 and zero width\u200bspace\u00a0nbsp",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "text<|endoftext|>glued<|im_end|>",
    "∑ xₐ ≥ √y ∞ → ≈",
    "https://example.org/path?query=a%20b&c=d#e",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\x00\x01 control \x7f bytes \ufeff",
    "",
]


@pytest.fixture(scope="module")
def oracle(smollm2_path: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)


@pytest.mark.case("C062")
@pytest.mark.parametrize("text", SENTENCES)
def test_a_gguf_tokenizer_gives_the_ids_that_transformers_gives(smollm2_tokenizer: Tokenizer, oracle: PreTrainedTokenizerBase, text: str) -> None:
    assert smollm2_tokenizer.encode(text) == oracle.encode(text)
    assert smollm2_tokenizer.encode_chat(text) == oracle.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", SENTENCES)
def test_the_bytes_of_tokens_join_to_the_text(smollm2_tokenizer: Tokenizer, text: str) -> None:
    token_ids = smollm2_tokenizer.encode(text)
    assert b"".join(map(smollm2_tokenizer.token_bytes, token_ids)) == text.encode()
    assert smollm2_tokenizer.decode(token_ids, skip_special_tokens=False) == text


def test_digits_are_split_before_runs_of_spaces_as_the_model_was_trained(smollm2_tokenizer: Tokenizer) -> None:
    # The model's own tokenizer.json has Digits before ByteLevel; transformers' reading of the GGUF file leaves Digits out.
    def pieces(text: str) -> list[bytes]:
        return [smollm2_tokenizer.token_bytes(token_id) for token_id in smollm2_tokenizer.encode(text)]

    assert pieces("x   42") == [b"x", b"   ", b"4", b"2"]
    assert pieces("x ½") == [b"x", b" ", "½".encode()]


def test_a_gguf_file_names_the_special_tokens_and_the_chat_template(smollm2_tokenizer: Tokenizer, oracle: PreTrainedTokenizerBase) -> None:
    assert (smollm2_tokenizer.bos_token, smollm2_tokenizer.bos_token_id) == ("<|im_start|>", 1)
    assert (smollm2_tokenizer.eos_token, smollm2_tokenizer.eos_token_ids) == ("<|im_end|>", (2,))
    assert smollm2_tokenizer.vocab_size == len(oracle) == 49152
    assert smollm2_tokenizer.special_token_ids == set(range(17))
    assert smollm2_tokenizer.chat_template == oracle.chat_template
    assert smollm2_tokenizer.token_bytes(2) == b"<|im_end|>"


def test_the_ids_of_a_gguf_file_are_counted_without_making_a_tokenizer(smollm2_path: Path, smollm2_tokenizer: Tokenizer) -> None:
    assert count_token_ids(smollm2_path) == smollm2_tokenizer.vocab_size


@pytest.mark.parametrize("token_id", [-1, 49152, 2**40])
def test_an_id_outside_the_vocabulary_has_no_bytes(smollm2_tokenizer: Tokenizer, token_id: int) -> None:
    assert smollm2_tokenizer.token_bytes(token_id) == b""


def test_no_token_is_longer_than_the_bound_says(smollm2_tokenizer: Tokenizer) -> None:
    assert smollm2_tokenizer.max_token_characters is not None
    texts = (smollm2_tokenizer.token_bytes(token_id).decode(errors="ignore") for token_id in range(smollm2_tokenizer.vocab_size))
    assert max(map(len, texts)) <= smollm2_tokenizer.max_token_characters


def test_loading_a_gguf_tokenizer_imports_neither_torch_nor_transformers(smollm2_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from stoker_engine.tokenizer import load_tokenizer; import stoker_engine.frontend.output_processor, "
        "stoker_engine.frontend.input_processor; load_tokenizer(Path(sys.argv[1])); sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", program, str(smollm2_path)], check=False).returncode == 0


def test_others_go_on_while_a_long_text_is_tokenized(smollm2_tokenizer: Tokenizer) -> None:
    text = "".join(f"word{number} and some more of them; " for number in range(20_000))
    thread = threading.Thread(target=smollm2_tokenizer.encode_chat, args=(text,))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0)
    assert turns > 100


def test_a_text_that_is_no_unicode_is_refused(smollm2_tokenizer: Tokenizer) -> None:
    with pytest.raises(ParameterError, match="lone surrogate"):
        smollm2_tokenizer.encode("a\ud800b")
