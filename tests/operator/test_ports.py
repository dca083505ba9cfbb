import socket

import pytest

from stoker_operator.errors import LocalError
from stoker_operator.ports import MAX_PORT, choose_ports


def test_a_first_port_in_use_is_named(taken_port: int) -> None:
    with pytest.raises(LocalError, match=f"port {taken_port} on 127.0.0.1 is in use; stop what listens there or choose another with --port"):
        choose_ports("127.0.0.1", taken_port, 1)


def test_the_next_ports_skip_those_in_use(taken_port: int) -> None:
    ports = choose_ports("127.0.0.1", 0, 3)
    assert len(set(ports)) == 3
    assert taken_port not in ports
    with socket.create_server(("127.0.0.1", ports[1])):
        first, second = choose_ports("127.0.0.1", ports[0], 2)
    assert first == ports[0]
    assert second > ports[1]


def test_ports_end_at_the_last_one() -> None:
    with pytest.raises(
        LocalError,
        match=r"2 free ports are needed on 127\.0\.0\.1, one for each api and engine and a gateway before several, "
        r"and from 65535 to 65535 there are 1; choose a lower --port",
    ):
        choose_ports("127.0.0.1", MAX_PORT, 2)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "ä" * 64])
def test_a_host_that_is_no_name_at_all_is_named(host: str) -> None:
    with pytest.raises(LocalError, match=rf"cannot listen on {host}:8080: "):
        choose_ports(host, 8080, 1)


def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(LocalError, match=r"cannot listen on 192\.0\.2\.1:8080: Cannot assign requested address"):
        choose_ports("192.0.2.1", 8080, 1)
