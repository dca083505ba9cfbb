import random
import time

import msgspec
import numpy as np
import pytest

from stoker_engine.core.input_decoder import AbortRequests, AddRequest, CallUtility, InputDecoder, RejectRequest, recover_request_id
from stoker_engine.core.request import Request
from stoker_engine.core.request_checks import check_request
from stoker_engine.errors import ParameterError
from stoker_engine.protocol import EngineCoreReadyResponse, EngineCoreRequest, EngineCoreRequestType, UtilityRequest, encode, max_body_bytes
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.serialization import MessageEncoder

ADD, ABORT, UTILITY = EngineCoreRequestType.ADD, EngineCoreRequestType.ABORT, EngineCoreRequestType.UTILITY
READY = EngineCoreReadyResponse(
    max_model_len=100,
    max_num_seqs=4,
    max_logprobs=5,
    num_blocks=10,
    block_size=16,
    vocab_size=1000,
    dtype="float32",
    version="0",
    priority_scheduling=False,
    prefix_caching=True,
)


class Core:
    """What the input thread knows of an engine core."""

    ready_response = READY

    def preprocess(self, request: EngineCoreRequest) -> Request:
        check_request(request, READY)
        return Request.from_engine_core_request(request, None)

    def abort_eagerly(self, request_ids: list[str]) -> None:
        raise AssertionError("the decoder aborts nothing")


@pytest.fixture
def decoder() -> InputDecoder:
    return InputDecoder(Core())


def request(request_id: str = "a-request", prompt: list[int] | None = None, **params: object) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, prompt or [1, 2, 3], SamplingParams(**params), time.time(), client_index=3)


def frames(request_type: EngineCoreRequestType, *rest: bytes | memoryview) -> list[bytes]:
    return [b"client", request_type.value, *map(bytes, rest)]


def test_each_type_becomes_what_the_loop_is_to_do(decoder: InputDecoder) -> None:
    added = decoder.decode(frames(ADD, encode(request())))
    assert isinstance(added, AddRequest) and added.client == b"client" and added.request.request_id == "a-request"
    assert decoder.decode(frames(ABORT, encode(["a", "b"]))) == AbortRequests(b"client", ["a", "b"])
    call = UtilityRequest(7, "method", [1, "x"])
    assert decoder.decode(frames(UTILITY, encode(call))) == CallUtility(b"client", call)


def test_the_arguments_of_a_call_may_be_arrays(decoder: InputDecoder) -> None:
    array = np.arange(1000)
    called = decoder.decode(frames(UTILITY, *MessageEncoder().encode(UtilityRequest(7, "method", [array]))))
    assert isinstance(called, CallUtility)
    np.testing.assert_array_equal(called.call.args[0], array)


@pytest.mark.fault("B4")
@pytest.mark.parametrize(
    ("message", "why"),
    [
        ([b"client"], "1 frames"),
        ([b"client", b"\x00"], "2 frames"),
        ([b"client", *[b"\x00"] * 100], "101 frames"),
        ([b"client", b"\x07", b"\x90"], "EngineCoreRequestType"),
        ([b"client", b"", b"\x90"], "EngineCoreRequestType"),
        (frames(ABORT, b"\xc1"), "malformed"),
        (frames(ABORT, encode([1])), "Expected `str`"),
        (frames(ABORT, encode(["x" * 2000])), "length"),
        (frames(UTILITY, b"\x91" * 100_000 + b"\xc0"), "Expected"),
        (frames(UTILITY, encode([1, 2])), "Expected `str`"),
        (frames(ADD, b""), "truncated"),
        (frames(ADD, b"\x93\x01\x02"), "Expected"),
        (frames(ABORT, bytes(max_body_bytes(READY) + 1)), f"{max_body_bytes(READY) + 1} bytes"),
    ],
)
def test_what_nobody_can_be_told_of_raises_the_error_that_the_thread_catches(decoder: InputDecoder, message: list[bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decoder.decode(message)


@pytest.mark.property("P34")
@pytest.mark.fault("B4")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (encode(request())[:-3], "cannot be decoded"),
        (encode(["a-request"]), "cannot be decoded"),
        (encode(["a-request", "no list"]), "cannot be decoded"),
        (encode(["a-request", [1], [1, 99.0], 0.0]), "temperature"),
        (encode(["a-request", [1]]) + b"\x91" * 100_000, "cannot be decoded"),
        (encode(request(prompt=[5] * 200))[:-2], "cannot be decoded"),
        (encode(["a-request", bytes(max_body_bytes(READY))]), "bytes are more than"),
        (encode(request(prompt=[1000])), "vocabulary"),
        (encode(request(prompt=[1] * 100)), "no room"),
        (encode(request(prompt=[2**31])), "cannot be decoded"),
        (encode(request(logit_bias={1000: 1.0})), "logit_bias"),
        (encode(request(allowed_token_ids=[0, 1000])), "allowed_token_ids"),
        (encode(request(logprobs=6)), "logprobs"),
        (encode(request(prompt_logprobs=-1)), "prompt_logprobs"),
    ],
)
def test_a_request_whose_id_can_be_read_is_answered(decoder: InputDecoder, body: bytes, why: str) -> None:
    rejected = decoder.decode(frames(ADD, body))
    assert isinstance(rejected, RejectRequest) and (rejected.client, rejected.request_id) == (b"client", "a-request")
    assert why in rejected.message


def test_a_request_with_a_frame_too_many_is_answered(decoder: InputDecoder) -> None:
    assert isinstance(decoder.decode(frames(ADD, encode(request()), b"more")), RejectRequest)


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256, 1024])
def test_an_id_of_any_length_is_recovered(length: int) -> None:
    body = encode(request("x" * length))
    assert recover_request_id(body) == recover_request_id(body[: length + 10]) == "x" * length


@pytest.mark.parametrize(
    "body", [b"", b"\x93", b"\x93\xa3ab", b"\x93\xa0", b"\x93\xd9", b"\x93\xda\x00", b"\x93\xa1\xff", b"\x93\x05", b"\xa1a", b"\x80", b"\xdc\x00"]
)
def test_what_has_no_id_gives_none(body: bytes) -> None:
    assert recover_request_id(body) is None


def test_an_id_longer_than_any_is_none() -> None:
    assert recover_request_id(encode(["x" * 1025])) is None


@pytest.mark.property("P52")
@pytest.mark.parametrize("seed", range(10))
def test_damaged_messages_are_decoded_or_refused(decoder: InputDecoder, seed: int) -> None:
    random_ = random.Random(seed)
    bodies = [(ADD, encode(request(stop=["x"], logit_bias={1: 1.0}))), (ABORT, encode(["a", "b"])), (UTILITY, encode(UtilityRequest(1, "m", [[1], "x"])))]
    for _ in range(1000):
        request_type, body = random_.choice(bodies)
        damaged = bytearray(body)
        for _ in range(random_.randrange(1, 4)):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        del damaged[random_.choice([len(damaged), random_.randrange(len(damaged))]) :]
        try:
            decoder.decode(frames(request_type, bytes(damaged)))
        except ValueError as error:
            assert isinstance(error, msgspec.MsgspecError | ParameterError | ValueError)
