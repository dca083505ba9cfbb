import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from stream_counter import Streams

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@contextmanager
def one_stream() -> Iterator[tuple[Streams, socket.socket]]:
    """The counter, and the server's side of its only stream."""
    with socket.create_server(("127.0.0.1", 0)) as server, closing(Streams(server.getsockname()[1], b"", 1)) as streams, server.accept()[0] as connection:
        yield streams, connection


def test_events_and_the_end_are_seen_wherever_the_reads_are_cut() -> None:
    text = b"data: {}\n\ndata: {}\n\ndata: [DONE]\n\n"
    for cut in range(1, len(text) - 2):
        with one_stream() as (streams, connection):
            for part in (HEAD, text[:cut], text[cut:]):
                connection.sendall(part)
                if streams.are_open:
                    streams.read()
            assert (streams.num_events, streams.are_open) == (3, 0), cut


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b""])
def test_an_answer_that_is_no_stream_is_told(answer: bytes) -> None:
    with one_stream() as (streams, connection):
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        with pytest.raises(RuntimeError, match="ended early: "):
            streams.read()
