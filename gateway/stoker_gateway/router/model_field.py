"""The model in a body, written anew where the client's name for it is not the replicas': they know `servedName` and `aliases`, not `namespace/name`."""

import msgspec

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def with_model(body: bytes, model: str) -> bytes:
    """`body` is a JSON object; every other value of it stays as it is, byte for byte."""
    return _encode({**_decode(body), "model": model})
