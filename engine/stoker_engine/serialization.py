"""Messages ↔ frames: msgpack with numpy arrays in it, no pickle.

An array travels as msgpack extension 3, whose payload is `[dtype name, shape, data]`. Data is the array's bytes, or, from ARRAY_FRAME_BYTES on, the
number of a frame of its own behind the body, so that it is copied neither into the body nor out of it. A decoder believes nothing of what it is told.
"""

import math
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

ARRAY_EXTENSION = 3
ARRAY_FRAME_BYTES = 256
"""A frame of its own costs about what copying so many bytes into the body does."""
MAX_DIMENSIONS = 8

DtypeName = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
Dimension = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
T = TypeVar("T")


class _ArrayHeader(msgspec.Struct, array_like=True, gc=False):
    """`data`: the bytes themselves, or the index of their frame among those behind the body."""

    dtype: DtypeName
    shape: Annotated[list[Dimension], msgspec.Meta(max_length=MAX_DIMENSIONS)]
    data: bytes | Annotated[int, msgspec.Meta(ge=0)]


_DTYPE_NAMES = frozenset(typing.get_args(DtypeName))
_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(_ArrayHeader).decode


def safe_decoder(message_type: type[T], **hooks: Any) -> Callable[[bytes | memoryview], T]:
    """A msgpack decoder that raises msgspec.MsgspecError for whatever is wrong with its input, too deep a nesting included."""
    decode: Callable[[bytes | memoryview], T] = msgspec.msgpack.Decoder(message_type, **hooks).decode

    def decode_safely(body: bytes | memoryview) -> T:
        try:
            return decode(body)
        except RecursionError as error:
            raise msgspec.DecodeError("nested too deeply") from error

    return decode_safely


class MessageEncoder:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_array)
        self._aux: list[memoryview] = []

    def encode(self, message: object) -> list[bytes | memoryview]:
        """The frames of a message: the body, and one for each large array. Arrays must not change until they are sent."""
        body = self._encoder.encode(message)
        return [body, *self._take_aux()]

    def encode_into(self, message: object, body: bytearray) -> list[memoryview]:
        """Makes `body` the message's body and returns the other frames, which are the memory of its arrays."""
        self._encoder.encode_into(message, body)
        return self._take_aux()

    def _take_aux(self) -> list[memoryview]:
        if not self._aux:
            return []
        aux, self._aux = self._aux, []
        return aux

    def _encode_array(self, value: object) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a {type(value).__name__} cannot be sent")
        if value.dtype.name not in _DTYPE_NAMES:
            raise TypeError(f"an array of {value.dtype} cannot be sent")
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        data: bytes | int
        if value.nbytes < ARRAY_FRAME_BYTES:
            data = value.tobytes()
        else:
            data = len(self._aux)
            self._aux.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return msgspec.msgpack.Ext(ARRAY_EXTENSION, _encode_header([value.dtype.name, value.shape, data]))


class MessageDecoder(Generic[T]):
    """Decodes the frames of one message type. Arrays are read-only views of their frames. Not for several threads at once."""

    def __init__(self, message_type: type[T]) -> None:
        self._decode = safe_decoder(message_type, dec_hook=_check_array, ext_hook=self._decode_extension)
        self._aux: Sequence[bytes] = ()

    def decode(self, frames: Sequence[bytes]) -> T:
        """The message whose body is the first frame. Raises msgspec.MsgspecError for whatever is wrong with them."""
        self._aux = frames[1:]
        try:
            return self._decode(frames[0])
        finally:
            self._aux = ()

    def _decode_extension(self, code: int, payload: memoryview) -> npt.NDArray[Any]:
        if code != ARRAY_EXTENSION:
            raise msgspec.ValidationError(f"extension {code} is unknown")
        header = _decode_header(payload)
        dtype = np.dtype(header.dtype)
        data = header.data
        if isinstance(data, int):
            if data >= len(self._aux):
                raise msgspec.ValidationError(f"an array is said to be in frame {data} of {len(self._aux)}")
            data = self._aux[data]
        if math.prod(header.shape) * dtype.itemsize != len(data):
            raise msgspec.ValidationError(f"an array of {len(data)} bytes is said to be {header.dtype} {header.shape}")
        if header.dtype == "bool" and data.strip(b"\0\1"):
            raise msgspec.ValidationError("a truth value is neither 0 nor 1")
        return _reshape(np.frombuffer(data, dtype), header.shape)


def _reshape(array: npt.NDArray[Any], shape: list[int]) -> npt.NDArray[Any]:
    try:
        return array.reshape(shape)
    except ValueError as error:  # no elements, but dimensions beyond numpy's
        raise msgspec.ValidationError(str(error)) from error


def _check_array(field_type: Any, value: object) -> Any:
    """dec_hook: the value of a field that is declared as an array."""
    expected = _declared_dtype(field_type)
    if not isinstance(value, np.ndarray) or value.dtype != expected:
        raise msgspec.ValidationError(f"expected an array of {expected}")
    return value


@cache
def _declared_dtype(field_type: Any) -> np.dtype[Any]:
    """npt.NDArray[np.int32] → int32"""
    scalar: type[np.generic] = typing.get_args(typing.get_args(field_type)[1])[0]
    return np.dtype(scalar)
