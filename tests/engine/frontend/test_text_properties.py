from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_engine.finish_reason import FinishReason
from stoker_engine.frontend.detokenizer import Detokenizer
from stoker_engine.frontend.output_processor import OutputProcessor
from stoker_engine.outputs import RequestOutput
from stoker_engine.protocol import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, LogprobsArrays, LogprobsLists
from stoker_engine.sampling_params import RequestOutputKind, SamplingParams
from stoker_engine.tokenizer import Tokenizer

STOPS = st.lists(st.text(alphabet="ab😀é", min_size=1, max_size=4), max_size=4)
STOP_PARAMS = st.builds(
    SamplingParams,
    stop=STOPS,
    min_tokens=st.integers(0, 6),
    include_stop_str_in_output=st.booleans(),
    max_tokens=st.just(1000),
    logprobs=st.just(1),
    prompt_logprobs=st.just(0),
)
EXAMPLES = 300
NO_PROMPT_LOGPROBS = LogprobsArrays(np.empty((0, 1), np.int32), np.empty((0, 1), np.float32), np.empty(0, np.int32))


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    """A text that may end within a character, cut into tokens of one to three bytes anywhere."""
    data = draw(st.text(alphabet="ab😀é", min_size=1, max_size=20)).encode()
    data = data[: max(1, len(data) - draw(st.integers(0, 3)))]
    chunks = []
    while data:
        length = draw(st.integers(1, 3))
        chunks.append(data[:length])
        data = data[length:]
    return chunks


def ids_of(tokenizer: Tokenizer, chunks: Sequence[bytes]) -> list[int]:
    by_bytes = {tokenizer.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    return [by_bytes[chunk] for chunk in chunks]


def expected_text(chunks: Sequence[bytes], params: SamplingParams) -> tuple[str, str | None]:
    """The shown text and the stop string, by the definition: after each token look at the whole text so far."""
    for num_tokens in range(params.min_tokens + 1, len(chunks) + 1):
        before = complete_text(b"".join(chunks[: num_tokens - 1]))
        text = complete_text(b"".join(chunks[:num_tokens]))
        matches = [
            (start, -len(stop), stop) for stop in params.stop for start in range(len(text)) if text.startswith(stop, start) and start + len(stop) > len(before)
        ]
        if matches:
            start, _, stop = min(matches)
            return text[: start + len(stop) if params.include_stop_str_in_output else start], stop
    return b"".join(chunks).decode(errors="replace"), None


def complete_text(data: bytes) -> str:
    """The text without an incomplete character at its end."""
    for length in (1, 2, 3):
        tail = data[-length:]
        if tail and tail[0] >= 0xC0:
            needed = 2 if tail[0] < 0xE0 else 3 if tail[0] < 0xF0 else 4
            return data[: len(data) - length if length < needed else len(data)].decode()
    return data.decode()


@pytest.mark.property("P46")
@settings(max_examples=EXAMPLES, deadline=None)
@given(chunks=cut_texts(), params=STOP_PARAMS)
def test_the_text_is_that_of_the_definition(chunk_tokenizer: Tokenizer, chunks: list[bytes], params: SamplingParams) -> None:
    detokenizer = Detokenizer(chunk_tokenizer, [0], params)
    matched = detokenizer.append(ids_of(chunk_tokenizer, chunks))
    if matched is None:
        detokenizer.finish()
    assert (detokenizer.text(), matched) == expected_text(chunks, params)


@pytest.mark.property("P46")
@settings(max_examples=EXAMPLES, deadline=None)
@given(chunks=cut_texts(), stop=STOPS)
def test_all_but_the_beginning_of_a_stop_string_is_shown_at_once(chunk_tokenizer: Tokenizer, chunks: list[bytes], stop: list[str]) -> None:
    detokenizer = Detokenizer(chunk_tokenizer, [0], SamplingParams(stop=stop, max_tokens=1000))
    data = b""
    for chunk, token_id in zip(chunks, ids_of(chunk_tokenizer, chunks), strict=True):
        data += chunk
        if detokenizer.append([token_id]) is not None:
            return
        text, shown = complete_text(data), detokenizer.text()
        held = text[len(shown) :]
        assert text.startswith(shown)
        assert "\ufffd" not in shown
        assert not held or any(word.startswith(held) and word != held for word in stop)
        longer = [text[start:] for start in range(len(shown)) if any(word.startswith(text[start:]) and word != text[start:] for word in stop)]
        assert not longer


@pytest.mark.property("P47")
@settings(max_examples=EXAMPLES, deadline=None)
@given(tokens=st.lists(st.integers(0, 300), max_size=30))
def test_any_bytes_give_the_text_of_the_whole_decoded_at_once(chunk_tokenizer: Tokenizer, tokens: list[int]) -> None:
    detokenizer = Detokenizer(chunk_tokenizer, [0], SamplingParams(max_tokens=1000))
    detokenizer.append(tokens)
    detokenizer.finish()
    assert detokenizer.text() == chunk_tokenizer.decode(tokens)


@st.composite
def endings(draw: st.DrawFn) -> tuple[str, list[int]]:
    """How the request ends, if by no stop string, and the sizes of the engine's messages."""
    return draw(st.sampled_from(["length", "eos", "abort"])), draw(st.lists(st.integers(1, 4), min_size=1, max_size=20))


def run_request(tokenizer: Tokenizer, token_ids: list[int], params: SamplingParams, ending: tuple[str, list[int]]) -> list[RequestOutput]:
    """The outputs of a request whose tokens arrive in messages of the given sizes."""
    processor = OutputProcessor(tokenizer)
    request = EngineCoreRequest("r-0", [0], params, arrival_time=0.0, external_request_id="r")
    processor.add_request(request, None, None, 0, None)
    reason, sizes = ending
    token_ids = [*token_ids, tokenizer.eos_token_ids[0]] if reason == "eos" else token_ids
    outputs: list[RequestOutput] = []
    position = 0
    while position < len(token_ids) and processor.num_requests:
        new = token_ids[position : position + sizes[position % len(sizes)]]
        lists = LogprobsLists([[token_id, 1] for token_id in new], [[-0.5 - position, -9.0] for _ in new], [1 for _ in new])
        prompt_logprobs = NO_PROMPT_LOGPROBS if position == 0 else None
        position += len(new)
        core_reason = {"length": FinishReason.LENGTH, "eos": FinishReason.STOP, "abort": None}[reason] if position == len(token_ids) else None
        core_output = EngineCoreOutput("r-0", new, finish_reason=core_reason, new_logprobs=lists, new_prompt_logprobs=prompt_logprobs)
        outputs += processor.process_outputs(EngineCoreOutputs(outputs=[core_output], timestamp=float(position))).request_outputs
    processor.abort_requests(["r"])
    outputs += processor.process_outputs(EngineCoreOutputs()).request_outputs
    assert processor.num_requests == 0
    return outputs


@pytest.mark.property("P45")
@settings(max_examples=EXAMPLES, deadline=None)
@given(chunks=cut_texts(), params=STOP_PARAMS, ending=endings())
def test_deltas_join_to_the_cumulative_and_the_final_output(
    chunk_tokenizer: Tokenizer, chunks: list[bytes], params: SamplingParams, ending: tuple[str, list[int]]
) -> None:
    def run(kind: RequestOutputKind) -> list[RequestOutput]:
        return run_request(chunk_tokenizer, ids_of(chunk_tokenizer, chunks), msgspec.structs.replace(params, output_kind=kind), ending)

    deltas, cumulative, finals = run(RequestOutputKind.DELTA), run(RequestOutputKind.CUMULATIVE), run(RequestOutputKind.FINAL_ONLY)
    assert len(finals) == 1
    assert [output.finished for output in deltas] == [False] * (len(deltas) - 1) + [True]
    final, last = finals[0].outputs[0], cumulative[-1].outputs[0]
    assert last == final
    assert "".join(output.outputs[0].text for output in deltas) == final.text
    assert [token_id for output in deltas for token_id in output.outputs[0].token_ids] == final.token_ids
    assert [position for output in deltas for position in output.outputs[0].logprobs or []] == final.logprobs
    assert (deltas[-1].outputs[0].finish_reason, deltas[-1].outputs[0].stop_reason) == (final.finish_reason, final.stop_reason)
    assert [list(output.prompt_logprobs) for output in [*deltas, *finals] if output.prompt_logprobs is not None] == [[None], [None]]
    assert final.logprobs is not None and len(final.logprobs) == len(final.token_ids)
    assert [next(iter(position)) for position in final.logprobs] == final.token_ids
    sampled = [next(iter(position.values())).logprob for position in final.logprobs]
    assert deltas[-1].outputs[0].cumulative_logprob == final.cumulative_logprob == sum(sampled)
    assert deltas[-1].num_output_tokens == cumulative[-1].num_output_tokens == finals[0].num_output_tokens >= len(final.token_ids)
