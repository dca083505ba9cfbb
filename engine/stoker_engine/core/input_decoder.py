"""Frames from the api → what the main loop is to do. Whatever is in the frames, the worst that comes of it is one refused request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from stoker_engine.core.request import Request
from stoker_engine.errors import EngineGenerateError, ParameterError
from stoker_engine.protocol import (
    MAX_ARRAY_FRAMES,
    MAX_REQUEST_ID_LENGTH,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
    UtilityRequest,
    decode_request,
    decode_request_ids,
    max_body_bytes,
)
from stoker_engine.serialization import MessageDecoder

_STRING_LENGTH_BYTES = {0xD9: 1, 0xDA: 2}
"""msgpack's str 8 and str 16: how many bytes their length takes."""
_ARRAY_HEADER_BYTES = {0xDC: 3, 0xDD: 5}


class RequestIntake(Protocol):
    """The part of the engine core that the input thread uses."""

    ready_response: EngineCoreReadyResponse

    def preprocess(self, request: EngineCoreRequest) -> Request: ...

    def abort_eagerly(self, request_ids: list[str]) -> None: ...


@dataclass(slots=True, frozen=True)
class AddRequest:
    client: bytes
    request: Request


@dataclass(slots=True, frozen=True)
class RejectRequest:
    """A request that could not be decoded or built: it fails alone."""

    client: bytes
    request_id: str
    client_index: int
    message: str
    parameter: str | None = None


@dataclass(slots=True, frozen=True)
class AbortRequests:
    client: bytes
    request_ids: list[str]


@dataclass(slots=True, frozen=True)
class CallUtility:
    client: bytes
    call: UtilityRequest


ClientInput = AddRequest | RejectRequest | AbortRequests | CallUtility
"""What a client sent, with the client's incarnation: the loop drops what comes from another than the present one."""


class InputDecoder:
    """Belongs to the input thread."""

    def __init__(self, core: RequestIntake) -> None:
        self._preprocess = core.preprocess
        self._max_body_bytes = max_body_bytes(core.ready_response)
        self._decode_call = MessageDecoder(UtilityRequest).decode

    def decode(self, frames: Sequence[bytes]) -> ClientInput:
        """One message: client, type, body, arrays. Raises ValueError, which msgspec.MsgspecError is, where nobody can be told what is wrong with it."""
        if not 3 <= len(frames) <= 3 + MAX_ARRAY_FRAMES:
            raise ValueError(f"{len(frames)} frames")
        client, type_frame, body = frames[:3]
        request_type = EngineCoreRequestType(bytes(type_frame))
        if request_type is EngineCoreRequestType.ADD:
            return self._decode_add(client, frames[2:])
        self._check_size(frames[2:])
        if request_type is EngineCoreRequestType.ABORT:
            return AbortRequests(client, decode_request_ids(body))
        return CallUtility(client, self._decode_call(frames[2:]))

    def _decode_add(self, client: bytes, frames: Sequence[bytes]) -> ClientInput:
        try:
            self._check_size(frames)
            if len(frames) > 1:
                raise ValueError("a request has no arrays")
            request = decode_request(frames[0])
        except ValueError as error:
            request_id = recover_request_id(frames[0])
            if request_id is None:
                raise
            return RejectRequest(client, request_id, 0, f"the request cannot be decoded: {error}")
        try:
            return AddRequest(client, self._preprocess(request))
        except (ValueError, TypeError, OverflowError, EngineGenerateError) as error:
            parameter = error.parameter if isinstance(error, ParameterError) else None
            return RejectRequest(client, request.request_id, request.client_index, str(error), parameter)

    def _check_size(self, frames: Sequence[bytes]) -> None:
        size = sum(map(len, frames))
        if size > self._max_body_bytes:
            raise msgspec.ValidationError(f"{size} bytes are more than the {self._max_body_bytes} of the largest request")


def recover_request_id(body: bytes) -> str | None:
    """The id at the start of an EngineCoreRequest, whatever follows; None where there is none."""
    start = _ARRAY_HEADER_BYTES.get(body[0], 1 if body[0] & 0xF0 == 0x90 else 0) if body else 0
    marker = body[start : start + 1]
    if not start or not marker:
        return None
    start += 1
    if marker[0] & 0xE0 == 0xA0:
        length = marker[0] & 0x1F
    elif marker[0] in _STRING_LENGTH_BYTES:
        end = start + _STRING_LENGTH_BYTES[marker[0]]
        length, start = int.from_bytes(body[start:end]), end
    else:
        return None
    data = body[start : start + length]
    try:
        request_id = data.decode()
    except UnicodeDecodeError:
        return None
    return request_id if len(data) == length and 0 < len(request_id) <= MAX_REQUEST_ID_LENGTH else None
