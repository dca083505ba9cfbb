"""Mutated frames and junk from strangers and from what looks like its engine: the api lives, answers good requests rightly, and does not grow."""

import json
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from stoker_engine.addresses import SocketAddresses
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import (
    PROTOCOL_VERSION,
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EnginePhase,
    Heartbeat,
    Hello,
    LogprobsArrays,
    LogprobsLists,
    PhaseReport,
    PrefillStats,
    UtilityOutput,
    encode,
    engine_identity,
    new_incarnation,
)
from stoker_engine.serialization import MessageEncoder
from stoker_engine.stats import SchedulerStats
from stoker_engine.testing import FakeEngineCore

Frames = list[bytes]
Mutate = Callable[[random.Random, Frames], Frames]

PROGRAM = Path(__file__).parent / "fuzzed_api.py"
FRAMES_PER_ROUND = 250
MAX_GROWTH_BYTES = 64
"""Per frame, once warm: a tenth of a frame."""


def junk_connections(random_: random.Random, paths: list[str]) -> list[socket.socket]:
    """What a port scanner does: connects, sends anything or half a greeting of ZMTP, and hangs."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    connections = []
    for path in paths:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connection.setblocking(False)
        half = greeting[: random_.randrange(len(greeting))]
        huge = greeting + b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER" + b"\x02" + struct.pack(">Q", 1 << 40)
        connection.send(random_.choice([random_.randbytes(100), b"GET / HTTP/1.1\r\n\r\n", half, greeting + random_.randbytes(50), huge, b"\0"]))
        connections.append(connection)
    return connections


class FuzzedApi:
    def __init__(self, socket_dir: str, model: Path, good_prompt: list[int]) -> None:
        self._question = json.dumps(good_prompt).encode() + b"\n"
        self.process = subprocess.Popen([sys.executable, str(PROGRAM), socket_dir, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self) -> dict[str, Any]:
        """A good request's tokens, and who is at each end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(self._question)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the api ended"
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def output_messages(incarnation: bytes, identity: bytes, live: list[str]) -> list[Frames]:
    """Good messages of each kind that an engine sends on the output link; `live` are requests in flight."""
    arrays = LogprobsArrays(np.ones((40, 2), np.int32), np.zeros((40, 2), np.float32), np.ones(40, np.int32))
    lists = LogprobsLists([[5, 6, 7]], [[-1.0, -2.0, -3.0]], [1])
    stats = SchedulerStats(1, 2, 0.5, 10, 5, 0, 3, 4)
    events = [EngineCoreEvent(EngineCoreEventType.QUEUED, 1.0), EngineCoreEvent(EngineCoreEventType.SCHEDULED, 2.0)]
    messages: list[EngineCoreOutputs] = [EngineCoreOutputs(utility_output=UtilityOutput(0, None, {"a": [1]})), EngineCoreOutputs(scheduler_stats=stats)]
    for request_id in ["unknown", *live]:
        outputs = [
            EngineCoreOutput(request_id, [5], None, None, lists, arrays, events, PrefillStats(3, 1)),
            EngineCoreOutput(request_id, [5, 6], None, None, LogprobsLists([[5], [6]], [[-1.0], [-1.0]], [1, 1])),
            EngineCoreOutput(request_id, [7], FinishReason.STOP, "stop"),
            EngineCoreOutput(request_id, [], FinishReason.ERROR, failure_message="why"),
        ]
        messages += [EngineCoreOutputs(0, [output], stats, 5.0) for output in outputs]
    return [[incarnation, identity, *map(bytes, MessageEncoder().encode(message))] for message in messages]


def handshake_messages() -> list[Frames]:
    """Good messages of each type that an engine sends on the handshake link."""
    ready = EngineCoreReadyResponse(100, 4, 5, 10, 16, 1000, "float32", "0", priority_scheduling=False, prefix_caching=True)
    return [[encode(message)] for message in (Hello(PROTOCOL_VERSION, 1), PhaseReport(EnginePhase.LOADING, 0.5), ready, Heartbeat(1, 0.1, 0.1, 1))]


class Peers:
    """Connections to an api's sockets that no engine has made."""

    def __init__(self, context: zmq.Context[Any], socket_dir: str, random_: random.Random, mutate: Mutate) -> None:
        self._random, self._mutate = random_, mutate
        self._context, self._addresses = context, SocketAddresses(socket_dir)
        self._handshakes = handshake_messages()
        self._junk: list[socket.socket] = []
        self._sockets: list[zmq.Socket[bytes]] = []
        self._connect()

    def _connect(self) -> None:
        """Others than before: what a peer says about itself must not outlive it."""
        self._close_sockets()
        # Another engine's, or no engine's at all, or this engine's index without a HELLO: the api's own engine must stay where it is.
        self._is_other = self._random.random() < 0.7
        others = [engine_identity(7, new_incarnation()), b"x" + self._random.randbytes(3), b"x" + self._random.randbytes(200)]
        identity = self._random.choice(others) if self._is_other else engine_identity(0, new_incarnation())
        kinds = ((zmq.DEALER, self._addresses.handshake), (zmq.DEALER, self._addresses.input), (zmq.PUSH, self._addresses.output))
        for kind, address in kinds:
            each = self._context.socket(kind)
            each.setsockopt(zmq.SNDHWM, 0)
            if kind == zmq.DEALER:
                each.setsockopt(zmq.IDENTITY, identity)
            each.connect(address)
            self._sockets.append(each)

    def send(self, facts: dict[str, Any]) -> None:
        """A round of frames."""
        incarnation, identity = bytes.fromhex(facts["incarnation"]), bytes.fromhex(facts["identity"])
        outputs = output_messages(incarnation, identity, facts["live"])
        openings = [[incarnation, identity], [incarnation, engine_identity(0, new_incarnation())], [incarnation, identity, bytes(8)]]
        handshake, opening, output = self._sockets
        for number in range(FRAMES_PER_ROUND):
            if number % 5 == 0:
                handshake.send_multipart(self._mutate(self._random, self._random.choice(self._handshakes[0 if self._is_other else 1 :])))
            elif number % 5 == 1:
                opening.send_multipart([*self._mutate(self._random, self._random.choice(openings)), b"never", b"an opening"])
            else:
                output.send_multipart(self._mutate(self._random, self._random.choice(outputs)))
        if self._random.random() < 0.2:
            self._connect()
            self._rotate_junk()

    def _rotate_junk(self) -> None:
        paths = [address.removeprefix("ipc://") for address in (self._addresses.handshake, self._addresses.input, self._addresses.output)]
        self._junk += junk_connections(self._random, paths)
        while len(self._junk) > 30:
            self._junk.pop(0).close()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close(1000)
        self._sockets = []

    def close(self) -> None:
        self._close_sockets()
        for connection in self._junk:
            connection.close()


@pytest.fixture
def fuzzed_api(socket_dir: str, smollm2_path: Path, good: tuple[list[int], list[int]]) -> Iterator[FuzzedApi]:
    api = FuzzedApi(socket_dir, smollm2_path, good[0])
    yield api
    api.close()


@pytest.fixture
def make_peers(socket_dir: str, mutate: Mutate) -> Iterator[Callable[[int], Peers]]:
    made: list[Peers] = []
    with zmq.Context() as context:

        def make(seed: int) -> Peers:
            made.append(Peers(context, socket_dir, random.Random(seed), mutate))
            return made[-1]

        yield make
        for peers in made:
            peers.close()


@pytest.fixture
def fuzz_api(
    fuzzed_api: FuzzedApi,
    fuzzed_engine: Callable[[], FakeEngineCore],
    make_peers: Callable[[int], Peers],
    slope_of: Callable[[int], Any],
    good: tuple[list[int], list[int]],
) -> Callable[[int], list[Any]]:
    """Sends an api so many mutated frames beside those of its engine, in rounds with a good request after each. The slopes of api and engine."""

    def fuzz(num_frames: int) -> list[Any]:
        with fuzzed_engine() as engine:
            slopes = [slope_of(fuzzed_api.process.pid), slope_of(engine.process.pid)]
            facts = fuzzed_api.ask()
            peers = make_peers(num_frames)
            for done in range(0, num_frames, FRAMES_PER_ROUND):
                peers.send(facts)
                facts = fuzzed_api.ask()
                assert facts["token_ids"] == good[1]
                assert fuzzed_api.process.poll() is None and engine.process.poll() is None
                for slope in slopes:
                    slope.sample(done)
        return slopes

    return fuzz


@pytest.mark.property("P52")
@pytest.mark.fault("B12")
def test_an_api_outlives_whatever_is_sent_to_its_sockets(fuzz_api: Callable[[int], list[Any]]) -> None:
    fuzz_api(1500)


@pytest.mark.property("P52")
@pytest.mark.fault("E5")
@pytest.mark.stress
def test_half_a_million_frames_grow_neither_api_nor_engine(fuzz_api: Callable[[int], list[Any]]) -> None:
    slopes = [slope.bytes_per_frame for slope in fuzz_api(500_000)]
    assert max(slopes) <= MAX_GROWTH_BYTES, slopes
