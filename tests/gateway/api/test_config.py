import re

import msgspec
import pytest

from stoker_gateway.http.urls import HOST, Endpoint, Origin


def test_every_port_there_is_and_no_other_may_be_named() -> None:
    host = re.compile(HOST)
    assert [port for port in range(70_000) if host.fullmatch(f"a.example:{port}")] == list(range(1, 65_536))
    assert host.fullmatch("[::1]:65535") and not host.fullmatch("a:080") and not host.fullmatch("a:")


@pytest.mark.parametrize("kind", [Origin, Endpoint])
def test_the_last_port_is_taken_and_the_next_refused(kind: object) -> None:
    assert msgspec.convert("http://a.example:65535", kind)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("http://a.example:65536", kind)
