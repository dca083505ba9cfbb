import numpy as np
import pytest

from stoker_engine.frontend.logprobs import LogprobsProcessor
from stoker_engine.outputs import Logprob
from stoker_engine.protocol import LogprobsArrays, LogprobsLists
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.tokenizer import Tokenizer

EMOJI = list("😀".encode())


def rows(*token_ids: int) -> LogprobsLists:
    return LogprobsLists([[token_id] for token_id in token_ids], [[-1.0] for _ in token_ids], [1 for _ in token_ids])


def arrays(*token_ids: int) -> LogprobsArrays:
    own = np.array(token_ids, np.int32)
    return LogprobsArrays(own[:, None], np.full((len(own), 1), -1.0, np.float32), np.ones(len(own), np.int32))


def test_the_sampled_token_comes_first_with_its_own_rank(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, [97], SamplingParams(logprobs=2))
    processor.append(LogprobsLists([[120, 97, 98], [97, 97, 98]], [[-5.0, -0.5, -1.0], [-0.25, -0.25, -2.0]], [9, 1]))
    assert [list(position) for position in processor.positions] == [[120, 97, 98], [97, 98]]
    assert processor.positions[0][120] == Logprob(-5.0, 9, "x", b"x")
    assert processor.positions[0][98] == Logprob(-1.0, 2, "b", b"b")
    assert processor.positions[1][97].rank == 1
    assert (processor.cumulative_logprob(1), processor.cumulative_logprob(2)) == (-5.0, -5.25)


def test_tokens_asked_for_by_id_have_no_rank(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, [97], SamplingParams(logprob_token_ids=[98]))
    processor.append(LogprobsLists([[120, 98]], [[-5.0, -0.5]], [9]))
    assert processor.positions[0][98].rank is None


@pytest.mark.case("C023")
def test_the_bytes_of_a_split_character_join_to_it_and_its_text_comes_with_the_last(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, [97], SamplingParams(logprobs=0))
    processor.append(rows(104, *EMOJI, 105))
    entries = [next(iter(position.values())) for position in processor.positions]
    assert [entry.token for entry in entries] == ["h", "", "", "", "😀", "i"]
    assert b"".join(entry.token_bytes for entry in entries) == "h😀i".encode()


@pytest.mark.case("C023")
def test_a_candidate_has_the_same_text_sampled_or_not(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, [97, *EMOJI[:3]], SamplingParams(logprobs=2))
    processor.append(LogprobsLists([[0x81, EMOJI[3], 97]], [[-3.0, -1.0, -2.0]], [3]))
    assert [entry.token for entry in processor.positions[0].values()] == ["😁", "😀", "a"]


def test_prompt_logprobs_begin_with_none_and_have_the_length_of_the_prompt(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, EMOJI, SamplingParams(prompt_logprobs=0))
    positions = processor.prompt_positions(arrays(*EMOJI[1:]))
    assert len(positions) == len(EMOJI)
    assert positions[0] is None
    assert [next(iter(position.values())).token for position in positions[1:] if position] == ["", "", "😀"]
    assert list(LogprobsProcessor(byte_tokenizer, [97], SamplingParams(prompt_logprobs=0)).prompt_positions(None)) == [None]


def test_prompt_positions_are_made_once_and_not_before_they_are_read(byte_tokenizer: Tokenizer) -> None:
    logprobs = arrays(*EMOJI[1:])
    positions = LogprobsProcessor(byte_tokenizer, EMOJI, SamplingParams(prompt_logprobs=0)).prompt_positions(logprobs)
    logprobs.token_ids[-1] = 97
    assert len(positions) == len(EMOJI)
    last = positions[-1]
    assert last is not None and list(last) == [97]
    assert positions[-1] is last


def test_an_id_without_bytes_has_an_empty_text(byte_tokenizer: Tokenizer) -> None:
    processor = LogprobsProcessor(byte_tokenizer, [97], SamplingParams(logprobs=0))
    processor.append(rows(100000))
    assert processor.positions == [{100000: Logprob(-1.0, 1, "", b"")}]
