"""A replica behind a network of its own that drops every packet from one moment on, as when its machine is gone."""

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

CAN_MAKE_NETWORKS = sys.platform == "linux" and os.geteuid() == 0 and all(map(shutil.which, ("ip", "iptables")))
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
READY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CONNECT_SECONDS = 1.0


@dataclass
class Network:
    """A namespace with one address, which this one reaches."""

    name: str
    address: str

    def run(self, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.name, *command], check=True)

    def drop(self) -> None:
        self.run("iptables", "-A", "INPUT", "-p", "tcp", "-j", "DROP")

    def restore(self) -> None:
        self.run("iptables", "-F", "INPUT")

    def listen(self) -> socket.socket:
        """A socket belongs to the namespace that its thread was in."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(f"/run/netns/{self.name}", "rb") as namespace:
                assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0
            made.append(socket.create_server((self.address, 0), backlog=256))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]


@pytest.fixture
def network() -> Iterator[Network]:
    name, third = f"stoker-{os.getpid()}", os.getpid() % 250
    own, other = f"198.18.{third}.1", f"198.18.{third}.2"
    link = f"stk{os.getpid()}"

    def run(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    run("netns", "add", name)
    try:
        run("link", "add", link, "type", "veth", "peer", "name", "inside", "netns", name)
        run("addr", "add", f"{own}/30", "dev", link)
        run("link", "set", link, "up")
        run("-n", name, "addr", "add", f"{other}/30", "dev", "inside")
        run("-n", name, "link", "set", "inside", "up")
        yield Network(name, other)
    finally:
        run("netns", "del", name)


@dataclass
class Replica:
    num_posts: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            if head.startswith(b"post"):
                self.num_posts += 1
                await asyncio.sleep(0.005)
                writer.write(ANSWER)
            else:
                writer.write(READY)


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


async def load(gateway: Any, model: str, num_clients: int, num_requests: int) -> list[float]:
    """Seconds of each request, all of which must be answered."""
    taken: list[float] = []
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=60, limits=limits) as client:

        async def one() -> None:
            for _ in range(num_requests):
                begin = time.perf_counter()
                response = await client.post("/v1/chat/completions", json={"model": model})
                taken.append(time.perf_counter() - begin)
                assert response.status_code == 200, response.text

        await asyncio.gather(*(one() for _ in range(num_clients)))
    return taken


async def both(gateway: Any, num_requests: int) -> tuple[list[float], list[float]]:
    others, own = await asyncio.gather(load(gateway, "others", 8, num_requests), load(gateway, "m", 8, num_requests))
    return others, own


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


@pytest.mark.stress
@pytest.mark.skipif(not CAN_MAKE_NETWORKS, reason="needs root, ip and iptables")
async def test_a_replica_whose_packets_are_dropped_costs_the_connect_timeout_and_others_nothing(
    network: Network, start_gateway: Any, static_model: Any, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    hole, far, near = Replica(), network.listen(), socket.create_server(("127.0.0.1", 0), backlog=256)
    there, here = address_of(far), address_of(near)
    async with serve(far, hole.serve), serve(near, Replica().serve):
        timeouts = {"connect": f"{CONNECT_SECONDS:g}s"}
        gateway = start_gateway(static_model("others", here), static_model("m", there, here, timeouts=timeouts))
        while not await asyncio.to_thread(gateway.is_ready):
            await asyncio.sleep(0.05)
        before = await both(gateway, 150)
        assert hole.num_posts > 50
        network.drop()
        after = await both(gateway, 150)
        num_slow = sum(second > CONNECT_SECONDS / 2 for second in after[1])
        assert 0 < num_slow <= 16, "those that were about to be sent there, once"
        assert max(after[1]) < 3 * CONNECT_SECONDS
        assert max(after[0]) < CONNECT_SECONDS / 2, "none of the others waits for it"
        num_posts = hole.num_posts
        network.restore()
        async with asyncio.timeout(30):
            while hole.num_posts == num_posts:
                await load(gateway, "m", 1, 2)
                await asyncio.sleep(0.1)
    with capsys.disabled():
        sys.stdout.write(
            f"\nothers' p99: {p99(before[0]) * 1000:.1f} ms, then {p99(after[0]) * 1000:.1f} ms with a black hole, {p99(after[0]) / p99(before[0]):.2f} times; "
            f"{num_slow} of {len(after[1])} requests took a connect timeout of {CONNECT_SECONDS:g} s, the slowest {max(after[1]):.2f} s\n"
        )
