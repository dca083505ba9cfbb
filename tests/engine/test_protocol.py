from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_engine import protocol
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import (
    ClientHeartbeat,
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineHandshakeMetadata,
    EnginePhase,
    Heartbeat,
    Hello,
    LogprobsArrays,
    LogprobsLists,
    PhaseReport,
    PrefillStats,
    UtilityOutput,
    UtilityRequest,
)
from stoker_engine.sampling_params import RepetitionDetection, RequestOutputKind, SamplingParams
from stoker_engine.serialization import MessageDecoder, MessageEncoder

thoroughly = settings(max_examples=60, deadline=None, derandomize=True, database=None)

ids = st.lists(st.integers(0, 2**31 - 1), max_size=5) | st.sampled_from([255, 256, 257]).map(lambda length: list(range(length)))
numbers = st.floats(allow_nan=False)
ratios = st.floats(0.01, 1.0)
rows = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), numbers), min_size=1, max_size=3), max_size=3)
logprobs = rows.map(lambda rows: LogprobsLists([[token_id for token_id, _ in row] for row in rows], [[x for _, x in row] for row in rows], [1] * len(rows)))


def make_arrays(num_rows: int, num_columns: int) -> LogprobsArrays:
    token_ids = np.arange(num_rows * num_columns, dtype=np.int32).reshape(num_rows, num_columns)
    return LogprobsArrays(token_ids, -token_ids.astype(np.float32), np.ones(num_rows, np.int32))


# From none of them in a frame of its own to all three.
prompt_logprobs = st.builds(make_arrays, st.sampled_from([0, 1, 2, 31, 32, 33, 63, 64, 65]), st.sampled_from([1, 2]))
sampling_params = st.builds(
    SamplingParams,
    temperature=st.floats(0.5, 2.0),
    top_p=ratios,
    min_p=st.floats(0.0, 1.0),
    seed=st.none() | st.integers(-(2**63), 2**64 - 1),
    stop=st.lists(st.text(min_size=1), max_size=3),
    max_tokens=st.integers(1, 2**31),
    logprobs=st.none() | st.integers(-1, 20),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 2**31), st.floats(-100, 100), max_size=3),
    repetition_detection=st.none() | st.just(RepetitionDetection(max_size=3, min_count=3)),
    output_kind=st.sampled_from(RequestOutputKind),
)
requests = st.builds(
    EngineCoreRequest,
    request_id=st.text(),
    prompt_token_ids=ids,
    sampling_params=sampling_params,
    arrival_time=numbers,
    bad_words_token_ids=st.lists(ids, max_size=2),
    cache_salt=st.none() | st.text(),
    trace_headers=st.none() | st.dictionaries(st.text(), st.text(), max_size=2),
)
outputs = st.builds(
    EngineCoreOutput,
    request_id=st.text(),
    new_token_ids=ids,
    finish_reason=st.none() | st.sampled_from(FinishReason),
    stop_reason=st.none() | st.integers(0, 2**31) | st.text(),
    new_logprobs=st.none() | logprobs,
    new_prompt_logprobs=st.none() | prompt_logprobs,
    events=st.none() | st.lists(st.builds(EngineCoreEvent, type=st.sampled_from(EngineCoreEventType), timestamp=numbers), max_size=2),
    prefill_stats=st.none() | st.builds(PrefillStats, st.integers(0, 2**31), st.integers(0, 2**31)),
    failure_message=st.none() | st.text(),
    trace_headers=st.none() | st.dictionaries(st.text(), st.text(), max_size=2),
)
results = st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(), lambda item: st.lists(item, max_size=3))
utility_outputs = st.builds(UtilityOutput, call_id=st.integers(0, 2**31), failure_message=st.none() | st.text(), result=results)
phase_reports = st.builds(PhaseReport, phase=st.sampled_from(EnginePhase), progress=ratios, seconds=numbers, message=st.text())
small = st.integers(0, 2**31)


@pytest.mark.property("P57")
@thoroughly
@given(request=requests)
def test_a_request_decodes_to_what_was_encoded(request: EngineCoreRequest) -> None:
    assert protocol.decode_request(protocol.encode(request)) == request


@pytest.mark.property("P57")
@thoroughly
@given(message=st.builds(EngineCoreOutputs, outputs=st.lists(outputs, max_size=2), timestamp=numbers, utility_output=st.none() | utility_outputs))
def test_outputs_decode_to_what_was_encoded(message: EngineCoreOutputs) -> None:
    assert MessageDecoder(EngineCoreOutputs).decode(MessageEncoder().encode(message)) == message


@pytest.mark.property("P57")
@thoroughly
@given(call=st.builds(UtilityRequest, call_id=small, method=st.text(), args=st.lists(results, max_size=2)))
def test_a_utility_call_decodes_to_what_was_encoded(call: UtilityRequest) -> None:
    assert MessageDecoder(UtilityRequest).decode(MessageEncoder().encode(call)) == call


@pytest.mark.property("P57")
@thoroughly
@given(message=phase_reports | st.builds(Hello, small, small) | st.builds(Heartbeat, small, numbers, numbers, small))
def test_an_engines_handshake_message_decodes_to_what_was_encoded(message: protocol.EngineHandshakeMessage) -> None:
    assert protocol.decode_engine_handshake(protocol.encode(message)) == message


@pytest.mark.property("P57")
@pytest.mark.parametrize("message", [EngineHandshakeMetadata(1, b"\x00\xff" * 4), ClientHeartbeat()])
def test_an_apis_handshake_message_decodes_to_what_was_encoded(message: protocol.ClientHandshakeMessage) -> None:
    assert protocol.decode_client_handshake(protocol.encode(message)) == message


@pytest.mark.property("P57")
def test_an_engines_capacity_decodes_to_what_was_encoded() -> None:
    ready = EngineCoreReadyResponse(
        max_model_len=2048,
        max_num_seqs=128,
        max_logprobs=20,
        num_blocks=257,
        block_size=16,
        vocab_size=49152,
        dtype="bfloat16",
        version="0.1.0",
        priority_scheduling=True,
        prefix_caching=False,
    )
    assert protocol.decode_engine_handshake(protocol.encode(ready)) == ready


@pytest.mark.property("P52")
@thoroughly
@given(frame=st.binary(max_size=64))
def test_any_bytes_decode_or_raise_the_one_error_that_receivers_catch(frame: bytes) -> None:
    decode_outputs = MessageDecoder(EngineCoreOutputs).decode
    for decode in (protocol.decode_request, lambda frame: decode_outputs([frame]), protocol.decode_engine_handshake, protocol.decode_client_handshake):
        try:
            decode(frame)
        except msgspec.MsgspecError:
            continue


@pytest.mark.fault("D11")
@thoroughly
@given(index=st.integers(0, 65535))
def test_an_identity_gives_back_its_index_and_incarnation(index: int) -> None:
    incarnation = protocol.new_incarnation()
    assert protocol.parse_identity(protocol.engine_identity(index, incarnation)) == (index, incarnation)


@pytest.mark.parametrize("identity", [b"", b"\x00" * 9, b"\x00" * 11])
def test_what_is_no_identity_is_refused(identity: bytes) -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        protocol.parse_identity(identity)


DECODERS = (protocol.decode_request, protocol.decode_request_ids, protocol.decode_engine_handshake, protocol.decode_client_handshake)


@pytest.mark.parametrize("decode", [*DECODERS, lambda frame: MessageDecoder(UtilityRequest).decode([frame])])
def test_too_deep_a_nesting_raises_the_error_that_receivers_catch(decode: Callable[[bytes], object]) -> None:
    for start in (b"", b"\x93", b"\x93\xa1a", b"\x94\xa9heartbeat\x01", b"\x93\x01\xa1m"):
        with pytest.raises(msgspec.MsgspecError):
            decode(start + b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**63])
def test_an_id_that_no_token_has_is_not_decoded(token_id: int) -> None:
    request = EngineCoreRequest("a", [1, token_id], SamplingParams(), 0.0)
    with pytest.raises(msgspec.ValidationError):
        protocol.decode_request(protocol.encode(request))
    with pytest.raises(msgspec.ValidationError):
        MessageDecoder(EngineCoreOutputs).decode([protocol.encode(EngineCoreOutputs(outputs=[EngineCoreOutput("a", [token_id])]))])


@pytest.mark.parametrize("rows", [([[1]], [], []), ([[1]], [[-1.0]], []), ([[1, 2]], [[-1.0]], [1]), ([[]], [[]], [1])])
def test_log_probabilities_that_do_not_fit_together_are_not_decoded(rows: tuple[object, object, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(protocol.encode(rows), type=LogprobsLists)
