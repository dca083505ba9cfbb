"""The model in a body, written anew where the client's name for it is not the replicas': they know `servedName` and `aliases`, not `namespace/name`."""

import msgspec

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def with_model(body: bytes, model: str) -> bytes:
    """Every other value of the JSON object stays as it is, byte for byte. What cannot be read is the replica's to refuse."""
    try:
        return _encode({**_decode(body), "model": model})
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body
