import asyncio
from argparse import Namespace

import pytest
from gateway_load import CHUNKS, Backend, Stream, ask_again_and_again, plain, request_bytes

from gateway import MAX_BUSY, RATES, highest_rate


async def answers_of(head: bytes, seconds: float = 0.05) -> dict[str, object]:
    """What the clients say of a server that answers every request so, and closes where it has nothing to say."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await ask_again_and_again(Namespace(url=f"http://127.0.0.1:{port}", connections=2, seconds=seconds))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (plain({}).replace(b"200 OK", b"503 Service Unavailable"), "answered with 503"),
        (b"", "a connection was closed"),
        (b"SSH-2.0\r\n\r\n", "no answer in HTTP"),
    ],
)
async def test_requests_that_fail_are_told_and_are_no_figures(head: bytes, reason: str) -> None:
    assert reason in str((await answers_of(head))["bad"])


async def test_requests_of_the_warm_up_are_counted_too_and_do_not_count_for_the_rate() -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answer = await ask_again_and_again(Namespace(url=f"http://127.0.0.1:{port}", connections=2, seconds=0.1))
    assert answer["bad"] == ""
    assert int(str(answer["answered"])) > 0


async def test_a_stream_ends_also_where_a_gateway_leaves_out_what_it_does_not_know() -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    async with server:
        stream = Stream()
        await stream.run("127.0.0.1", server.sockets[0].getsockname()[1], request_bytes("here", "hi", stream=True, interval_ms=0), 10)
    assert (stream.outcome, len(stream.delays)) == ("ok", CHUNKS)


@pytest.mark.parametrize(("limit", "expected", "said"), [(30, 30, ""), (1, RATES[0], "the lowest rate"), (1000, RATES[-1], "the highest rate")])
def test_the_rate_is_the_highest_that_is_not_too_much_and_an_end_of_the_table_is_told(
    limit: float, expected: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert highest_rate(lambda rate: MAX_BUSY * rate / limit) == expected
    message = capsys.readouterr().err
    assert said in message and bool(message) == bool(said)
