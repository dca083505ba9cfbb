"""Mutated frames over the three sockets: both processes live, a good request in between is answered rightly, and neither process grows."""

import itertools
import json
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from stoker_engine.addresses import SocketAddresses
from stoker_engine.finish_reason import FinishReason
from stoker_engine.protocol import (
    PROTOCOL_VERSION,
    ClientHeartbeat,
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
    EngineHandshakeMetadata,
    EnginePhase,
    Heartbeat,
    Hello,
    LogprobsArrays,
    LogprobsLists,
    PhaseReport,
    PrefillStats,
    UtilityOutput,
    UtilityRequest,
    encode,
    engine_identity,
    new_incarnation,
)
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.serialization import MessageDecoder, MessageEncoder
from stoker_engine.stats import SchedulerStats
from stoker_engine.testing import FakeEngineCore, Reply, Script, fake_engine_config

Frames = list[bytes]

PROGRAM = Path(__file__).parent / "programs" / "fuzzed_api.py"
GOOD_PROMPT, GOOD_REPLY = [11, 12, 13], [21, 22, 23]
SCRIPT = Script(replies=[Reply(GOOD_PROMPT, GOOD_REPLY)], step_seconds=0.002)
FRAMES_PER_ROUND = 250
MAX_GROWTH_BYTES = 64
"""Per frame, once warm: a tenth of a frame."""
JUNK = [b"", b"\xc0", b"\xc1", b"\x90", b"\xff" * 9, b"\xdd\xff\xff\xff\xff", b"\x91" * 5000, b"\x00", b"GET / HTTP/1.1\r\n\r\n"]
WRONG_VALUES: list[Any] = [None, True, -1, 2**63, -(2**63), 1e308, float("nan"), "", "x" * 5000, [], [[]], {}, {"a": 1}, b"\0", [1] * 300]


def damaged(random_: random.Random, frame: bytes) -> bytes:
    """Another frame in the place of this one: a few bits or bytes changed, cut, repeated, of other types, or anything."""
    kind = random_.randrange(8)
    data = bytearray(frame)
    if kind == 0 or not data:
        return random_.choice([*JUNK, random_.randbytes(random_.randrange(40))])
    if kind == 1:
        return bytes(data[: random_.randrange(len(data))])
    if kind == 2:
        return wrongly_typed(random_, frame)
    if kind == 3:
        at = random_.randrange(len(data))
        return bytes(
            data[:at] + random_.choice([b"\xdd\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\x00\xff\xff\xff"]) + data[at:]
        )
    if kind == 4:
        at = random_.randrange(len(data))
        return bytes(data[:at] + data[at:] * 2)
    for _ in range(random_.randrange(1, 4)):
        at = random_.randrange(len(data))
        data[at] = data[at] ^ (1 << random_.randrange(8)) if kind == 5 else random_.randrange(256)
    return bytes(data)


def wrongly_typed(random_: random.Random, frame: bytes) -> bytes:
    """One value somewhere in it is of another type, or out of range."""
    try:
        value = msgspec.msgpack.decode(frame)
    except msgspec.MsgspecError:
        return frame + b"\x00"
    place: Any = value
    while isinstance(place, list) and place:
        at = random_.randrange(len(place))
        if not isinstance(place[at], list) or not place[at] or random_.random() < 0.3:
            place[at] = random_.choice(WRONG_VALUES)
            break
        place = place[at]
    return msgspec.msgpack.encode(value)


def mutated(random_: random.Random, frames: Frames) -> Frames:
    """The same message with one frame damaged, missing, too many, or in another place."""
    frames = list(frames)
    at = random_.randrange(len(frames))
    match random_.randrange(10):
        case 0:
            del frames[at]
        case 1:
            frames.insert(at, random_.choice([*JUNK, random_.randbytes(8)]))
        case 2:
            other = random_.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case 3:
            frames += [b"\x00"] * random_.randrange(200)
        case 4 | 5:
            frames[at] = damaged(random_, frames[at])
        case _:  # most often it is the body, where most of the decoding is
            frames[-1] = damaged(random_, frames[-1])
    return frames or [b""]


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


class Slope:
    """The growth of a process's memory over the frames it was sent, the first third not counted."""

    def __init__(self, pid: int, pss: Callable[[int], int]) -> None:
        self._pid, self._pss = pid, pss
        self._points: list[tuple[int, int]] = []

    def sample(self, num_frames: int) -> None:
        self._points.append((num_frames, self._pss(self._pid)))

    @property
    def bytes_per_frame(self) -> float:
        points = self._points[len(self._points) // 3 :]
        return float(np.polyfit(*zip(*points, strict=True), 1)[0])


class RawApi:
    """An api's three sockets without an api: whatever is to be sent to an engine, it sends."""

    def __init__(self, context: zmq.Context[Any], socket_dir: str) -> None:
        addresses = SocketAddresses(socket_dir)
        self.incarnation = new_incarnation()
        self.handshake, self.input, self.output = (context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PULL))
        for each, address in ((self.handshake, addresses.handshake), (self.input, addresses.input), (self.output, addresses.output)):
            each.setsockopt(zmq.LINGER, 0)
            each.setsockopt(zmq.RCVHWM, 0)
            each.setsockopt(zmq.SNDHWM, 0)
            each.setsockopt(zmq.RCVTIMEO, 30_000)
            each.bind(address)
        self.identity, _hello = self.handshake.recv_multipart()
        self.route = b""
        self._decoder = MessageDecoder(EngineCoreOutputs)
        self._numbers = itertools.count()

    def connect(self) -> None:
        """Begins anew: the engine drops what it was doing for this api, and opens another link."""
        self.handshake.send_multipart([self.identity, encode(EngineHandshakeMetadata(PROTOCOL_VERSION, self.incarnation))])
        while not self._take_opening():
            pass
        for each in (self.handshake, self.output):
            while each.poll(0):
                each.recv_multipart()

    def _take_opening(self) -> bool:
        route, incarnation, identity = self.input.recv_multipart()
        if incarnation != self.incarnation or identity != self.identity:
            return False
        self.route = route
        return True

    def ask(self) -> list[int]:
        """The tokens of a good request. Another is sent where a damaged INIT was good enough to open another link meanwhile."""
        request_id, token_ids = self._send_good(), []
        poller = zmq.Poller()
        poller.register(self.input, zmq.POLLIN)
        poller.register(self.output, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(30_000))
            assert ready, "the engine does not answer"
            if self.input in ready and self._take_opening():
                request_id, token_ids = self._send_good(), []
            frames = self.output.recv_multipart() if self.output in ready else [b""]
            for output in self._decoder.decode(frames[2:]).outputs if frames[0] == self.incarnation else []:
                if output.request_id == request_id:
                    token_ids += output.new_token_ids
                    if output.finish_reason is not None:
                        return token_ids

    def _send_good(self) -> str:
        request_id = f"good-{next(self._numbers)}"
        body = encode(EngineCoreRequest(request_id, GOOD_PROMPT, SamplingParams(temperature=0, max_tokens=3), time.time()))
        self.input.send_multipart([self.route, self.incarnation, EngineCoreRequestType.ADD.value, body])
        return request_id

    def close(self) -> None:
        for each in (self.handshake, self.input, self.output):
            each.close(0)


def input_messages(incarnation: bytes) -> list[Frames]:
    """Good messages of each type that an api sends on the input link."""
    params = [
        SamplingParams(temperature=0, max_tokens=2),
        SamplingParams(max_tokens=3, logprobs=2, prompt_logprobs=1, seed=7, stop=["x"], logit_bias={5: 1.0}, bad_words=["a"]),
        SamplingParams(max_tokens=2, allowed_token_ids=[1, 2], stop_token_ids=[3], top_k=5, min_p=0.1),
    ]
    requests = [EngineCoreRequest(f"fuzz-{i}", [1, 2, 3] * 20, each, 1.0, [0], [[5, 6]], 0, "salt", 0, "external") for i, each in enumerate(params)]
    calls = [UtilityRequest(1, "get_scheduler_stats"), UtilityRequest(2, "reset_prefix_cache", [np.arange(100), "x", [1]])]
    return [
        *([incarnation, EngineCoreRequestType.ADD.value, encode(request)] for request in requests),
        [incarnation, EngineCoreRequestType.ABORT.value, encode(["fuzz-0", "fuzz-1"])],
        *([incarnation, EngineCoreRequestType.UTILITY.value, *map(bytes, MessageEncoder().encode(call))] for call in calls),
    ]


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


@contextmanager
def raw_api(socket_dir: str) -> Iterator[RawApi]:
    with zmq.Context() as context:
        api = RawApi(context, socket_dir)
        try:
            yield api
        finally:
            api.close()


def fuzz_engine(socket_dir: str, num_frames: int, pss: Callable[[int], int]) -> Slope:
    """Sends an engine so many mutated frames, in rounds with a good request after each."""
    random_ = random.Random(num_frames)
    with FakeEngineCore(msgspec.structs.replace(fake_engine_config(socket_dir), log_level="error"), SCRIPT) as engine, raw_api(socket_dir) as api:
        slope = Slope(engine.process.pid, pss)
        messages = input_messages(api.incarnation)
        handshakes = [encode(EngineHandshakeMetadata(PROTOCOL_VERSION, api.incarnation)), encode(ClientHeartbeat())]
        for done in range(0, num_frames, FRAMES_PER_ROUND):
            api.connect()
            for _ in range(FRAMES_PER_ROUND - 2):
                api.input.send_multipart([api.route, *mutated(random_, random_.choice(messages))])
            for _ in range(2):
                api.handshake.send_multipart([api.identity, *mutated(random_, [random_.choice(handshakes)])])
            api.connect()
            assert api.ask() == GOOD_REPLY
            assert engine.process.poll() is None
            slope.sample(done)
    return slope


class FuzzedApi:
    def __init__(self, socket_dir: str, model: Path) -> None:
        self.process = subprocess.Popen([sys.executable, str(PROGRAM), socket_dir, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self) -> dict[str, Any]:
        """A good request's tokens, and who is at each end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(GOOD_PROMPT).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the api ended"
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Peers:
    """Connections to an api's sockets that no engine has made."""

    def __init__(self, context: zmq.Context[Any], socket_dir: str, random_: random.Random) -> None:
        self._random = random_
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
        openings = [[incarnation, identity], [incarnation, engine_identity(0, new_incarnation())]]
        handshake, opening, output = self._sockets
        for number in range(FRAMES_PER_ROUND):
            if number % 5 == 0:
                handshake.send_multipart(mutated(self._random, self._random.choice(self._handshakes[0 if self._is_other else 1 :])))
            elif number % 5 == 1:
                opening.send_multipart([*mutated(self._random, self._random.choice(openings)), b"never an opening"])
            else:
                output.send_multipart(mutated(self._random, self._random.choice(outputs)))
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


def fuzz_api(socket_dir: str, num_frames: int, pss: Callable[[int], int], model: Path) -> tuple[Slope, Slope]:
    """Sends an api so many mutated frames beside those of its engine, in rounds with a good request after each. The slopes of api and engine."""
    api = FuzzedApi(socket_dir, model)
    try:
        with FakeEngineCore(msgspec.structs.replace(fake_engine_config(socket_dir), log_level="error"), SCRIPT) as engine, zmq.Context() as context:
            slopes = Slope(api.process.pid, pss), Slope(engine.process.pid, pss)
            facts = api.ask()
            peers = Peers(context, socket_dir, random.Random(num_frames))
            try:
                for done in range(0, num_frames, FRAMES_PER_ROUND):
                    peers.send(facts)
                    facts = api.ask()
                    assert facts["token_ids"] == GOOD_REPLY
                    assert api.process.poll() is None and engine.process.poll() is None
                    for slope in slopes:
                        slope.sample(done)
            finally:
                peers.close()
    finally:
        api.close()
    return slopes


@pytest.mark.property("P52")
@pytest.mark.fault("B4")
def test_an_engine_outlives_whatever_its_api_sends(socket_dir: str, pss: Callable[[int], int]) -> None:
    fuzz_engine(socket_dir, 1500, pss)


@pytest.mark.property("P52")
@pytest.mark.fault("B12")
def test_an_api_outlives_whatever_is_sent_to_its_sockets(socket_dir: str, pss: Callable[[int], int], smollm2_path: Path) -> None:
    fuzz_api(socket_dir, 1500, pss, smollm2_path)


@pytest.mark.property("P52")
@pytest.mark.fault("E5")
@pytest.mark.stress
def test_half_a_million_frames_grow_no_engine(socket_dir: str, pss: Callable[[int], int]) -> None:
    assert fuzz_engine(socket_dir, 500_000, pss).bytes_per_frame <= MAX_GROWTH_BYTES


@pytest.mark.property("P52")
@pytest.mark.fault("E5")
@pytest.mark.stress
def test_half_a_million_frames_grow_neither_api_nor_engine(socket_dir: str, pss: Callable[[int], int], smollm2_path: Path) -> None:
    slopes = fuzz_api(socket_dir, 500_000, pss, smollm2_path)
    assert max(slope.bytes_per_frame for slope in slopes) <= MAX_GROWTH_BYTES, [slope.bytes_per_frame for slope in slopes]
