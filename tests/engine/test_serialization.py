from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker_engine.serialization import ARRAY_EXTENSION, MessageDecoder, MessageEncoder

thoroughly = settings(max_examples=100, deadline=None, derandomize=True, database=None)

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


class Holder(msgspec.Struct, array_like=True, eq=False):
    floats: npt.NDArray[np.float32]
    note: str = ""


def travel(message: object) -> Any:
    """Frames as they arrive: bytes, whatever they were."""
    frames = [bytes(frame) for frame in MessageEncoder().encode(message)]
    return MessageDecoder(type(message) if isinstance(message, msgspec.Struct) else Any).decode(frames)


def assert_same(array: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
    assert (array.dtype.name, array.shape) == (other.dtype.name, other.shape)
    np.testing.assert_array_equal(array, other)


def header(dtype: object, shape: object, data: object) -> list[bytes]:
    return [msgspec.msgpack.encode([msgspec.msgpack.Ext(ARRAY_EXTENSION, msgspec.msgpack.encode([dtype, shape, data])), "note"])]


@pytest.mark.property("P57")
@thoroughly
@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 9), max_size=4), step=st.sampled_from([1, 2, -1]), order=st.sampled_from("CF"))
def test_an_array_arrives_as_it_was(dtype: str, shape: list[int], step: int, order: Literal["C", "F"]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    if shape:
        array = array[::step]
    if order == "F":
        array = array.T
    assert_same(travel([1, array, "x"])[1], array)


@pytest.mark.property("P57")
@pytest.mark.parametrize(("num_bytes", "num_frames"), [(0, 1), (1, 1), (255, 1), (256, 2), (257, 2)])
def test_only_arrays_of_256_bytes_and_more_have_a_frame_of_their_own(num_bytes: int, num_frames: int) -> None:
    array = np.arange(num_bytes, dtype=np.uint8)
    assert len(MessageEncoder().encode([array])) == num_frames
    assert_same(travel([array])[0], array)


@pytest.mark.property("P57")
def test_every_second_element_of_a_large_array_arrives() -> None:
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)[:, ::2]
    assert_same(travel(Holder(array)).floats, array)


def test_the_bytes_of_a_foreign_order_are_turned() -> None:
    array = np.arange(100, dtype=">i4")
    arrived = travel([array])[0]
    np.testing.assert_array_equal(arrived, array)
    assert arrived.dtype.isnative


def test_several_arrays_keep_their_places() -> None:
    arrays = [np.full(size, size, np.float32) for size in (100, 1, 200, 0, 300)]
    for array, arrived in zip(arrays, travel(arrays), strict=True):
        assert_same(arrived, array)


def test_a_large_array_is_sent_from_and_read_in_its_own_memory() -> None:
    array = np.zeros(1000, np.float32)
    frames = MessageEncoder().encode(Holder(array))
    array[5] = 7
    assert np.frombuffer(frames[1], np.float32)[5] == 7
    received = bytes(frames[1])
    arrived = MessageDecoder(Holder).decode([bytes(frames[0]), received]).floats
    assert arrived.base is not None and not arrived.flags.owndata and not arrived.flags.writeable


def test_encoding_into_a_buffer_gives_the_same_frames() -> None:
    encoder, buffer = MessageEncoder(), bytearray(b"what was there before" * 100)
    message = Holder(np.arange(500, dtype=np.float32), "x")
    aux = encoder.encode_into(message, buffer)
    assert [bytes(frame) for frame in [buffer, *aux]] == [bytes(frame) for frame in encoder.encode(message)]
    assert encoder.encode_into(Holder(np.zeros(1, np.float32)), buffer) == []


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([object()]), np.array([1 + 2j]), np.array(["2020-01-01"], "M8[D]"), object()])
def test_what_is_no_array_of_numbers_is_not_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        MessageEncoder().encode([value])


@pytest.mark.parametrize(
    "frames",
    [
        header("float32", [2], b"\0" * 7),
        header("float32", [-2], b"\0" * 8),
        header("float32", [2**31], b""),
        header("float32", [2**30, 2**30, 2**30, 0], b""),
        header("float32", [1] * 9, b"\0" * 4),
        header("int32", [2], b"\0" * 8),
        header("object", [1], b"\0" * 8),
        header("O", [1], b"\0" * 8),
        header("V4", [1], b"\0" * 4),
        header(["a", "b"], [1], b"\0" * 4),
        header("float32", [2], 0),
        header("float32", [2], -1),
        header("float32", [2], 2**70 - 2**70 + 2**63),
        header("float32", 2, b"\0" * 8),
        [*header("float32", [2], 1), b"\0" * 8],
        [*header("float32", [2], 0), b"\0" * 9],
        [msgspec.msgpack.encode([msgspec.msgpack.Ext(ARRAY_EXTENSION, b"\xc1")])],
        [msgspec.msgpack.encode([msgspec.msgpack.Ext(ARRAY_EXTENSION, b"\x91" * 100_000)])],
        [msgspec.msgpack.encode([msgspec.msgpack.Ext(1, b"cos\nsystem\n(S'true'\ntR.")])],
        [msgspec.msgpack.encode([[1.0, 2.0]])],
        [msgspec.msgpack.encode([None])],
    ],
)
def test_an_array_that_cannot_be_raises_the_error_that_receivers_catch(frames: list[bytes]) -> None:
    with pytest.raises(msgspec.MsgspecError):
        MessageDecoder(Holder).decode(frames)


def test_bools_are_0_or_1() -> None:
    with pytest.raises(msgspec.ValidationError):
        MessageDecoder(Any).decode(header("bool", [2], b"\x01\x02"))


@thoroughly
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4), cut=st.integers(0, 50))
def test_damaged_frames_decode_or_raise_the_error_that_receivers_catch(flips: list[tuple[int, int]], cut: int) -> None:
    frames = [bytearray(frame) for frame in MessageEncoder().encode([Holder(np.arange(9, dtype=np.float32)), np.arange(100, dtype=np.int64), {"a": 1}])]
    for position, value in flips:
        frame = frames[position % 2]
        frame[position // 2 % len(frame)] = value
    frames[0] = frames[0][: len(frames[0]) - cut]
    try:
        MessageDecoder(Any).decode([bytes(frame) for frame in frames])
    except msgspec.MsgspecError:
        return
