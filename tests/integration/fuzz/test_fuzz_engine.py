"""Mutated frames from an api: the engine lives, a good request in between is answered rightly, and the process does not grow."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from stoker_engine.addresses import SocketAddresses
from stoker_engine.protocol import (
    PROTOCOL_VERSION,
    ClientHeartbeat,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    EngineHandshakeMetadata,
    UtilityRequest,
    encode,
    new_incarnation,
)
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.serialization import MessageDecoder, MessageEncoder
from stoker_engine.testing import FakeEngineCore

Frames = list[bytes]

FRAMES_PER_ROUND = 250
MAX_GROWTH_BYTES = 64
"""Per frame, once warm: a tenth of a frame."""


class RawApi:
    """An api's three sockets without an api: whatever is to be sent to an engine, it sends."""

    def __init__(self, context: zmq.Context[Any], socket_dir: str, good_prompt: list[int]) -> None:
        addresses = SocketAddresses(socket_dir)
        self._good_prompt = good_prompt
        self.incarnation = new_incarnation()
        self.handshake, self.input, self.output = (context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PULL))
        for each, address in ((self.handshake, addresses.handshake), (self.input, addresses.input), (self.output, addresses.output)):
            each.setsockopt(zmq.LINGER, 0)
            each.setsockopt(zmq.RCVHWM, 0)
            each.setsockopt(zmq.SNDHWM, 0)
            each.setsockopt(zmq.RCVTIMEO, 30_000)
            each.bind(address)
        self.identity = self.route = self._number = b""
        self._decoder = MessageDecoder(EngineCoreOutputs)
        self._numbers = itertools.count()

    def meet_engine(self) -> None:
        self.identity = self.handshake.recv_multipart()[0]

    def connect(self) -> None:
        """Begins anew: the engine drops what it was doing for this api, and opens another link."""
        self.handshake.send_multipart([self.identity, encode(EngineHandshakeMetadata(PROTOCOL_VERSION, self.incarnation))])
        while not self._take_opening():
            pass
        for each in (self.handshake, self.output):
            while each.poll(0):
                each.recv_multipart()

    def _take_opening(self) -> bool:
        route, incarnation, identity, number = self.input.recv_multipart()
        if incarnation != self.incarnation or identity != self.identity or number <= self._number:
            return False
        self.route, self._number = route, number
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
        body = encode(EngineCoreRequest(request_id, self._good_prompt, SamplingParams(temperature=0, max_tokens=3), time.time()))
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


@pytest.fixture
def raw_api(socket_dir: str, good: tuple[list[int], list[int]]) -> Iterator[RawApi]:
    with zmq.Context() as context:
        api = RawApi(context, socket_dir, good[0])
        yield api
        api.close()


@pytest.fixture
def fuzz_engine(
    raw_api: RawApi,
    fuzzed_engine: Callable[[], FakeEngineCore],
    mutate: Callable[[random.Random, Frames], Frames],
    slope_of: Callable[[int], Any],
    good: tuple[list[int], list[int]],
) -> Callable[[int], Any]:
    """Sends an engine so many mutated frames, in rounds with a good request after each. Returns its slope."""

    def send_round(random_: random.Random) -> None:
        messages = input_messages(raw_api.incarnation)
        handshakes = [encode(EngineHandshakeMetadata(PROTOCOL_VERSION, raw_api.incarnation)), encode(ClientHeartbeat())]
        for _ in range(FRAMES_PER_ROUND - 2):
            raw_api.input.send_multipart([raw_api.route, *mutate(random_, random_.choice(messages))])
        for _ in range(2):
            raw_api.handshake.send_multipart([raw_api.identity, *mutate(random_, [random_.choice(handshakes)])])

    def fuzz(num_frames: int) -> Any:
        random_ = random.Random(num_frames)
        with fuzzed_engine() as engine:
            raw_api.meet_engine()
            slope = slope_of(engine.process.pid)
            for done in range(0, num_frames, FRAMES_PER_ROUND):
                raw_api.connect()
                send_round(random_)
                raw_api.connect()
                assert raw_api.ask() == good[1]
                assert engine.process.poll() is None
                slope.sample(done)
        return slope

    return fuzz


@pytest.mark.property("P52")
@pytest.mark.fault("B4")
def test_an_engine_outlives_whatever_its_api_sends(fuzz_engine: Callable[[int], Any]) -> None:
    fuzz_engine(1500)


@pytest.mark.property("P52")
@pytest.mark.fault("E5")
@pytest.mark.stress
def test_half_a_million_frames_grow_no_engine(fuzz_engine: Callable[[int], Any]) -> None:
    assert fuzz_engine(500_000).bytes_per_frame <= MAX_GROWTH_BYTES
