"""What fuzz tests of the frames share: damage, a good request, and the growth of a process."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from stoker_engine.config import EngineConfig
from stoker_engine.testing import FakeEngineCore, Reply, Script, fake_engine_config

Frames = list[bytes]

GOOD_PROMPT, GOOD_REPLY = [11, 12, 13], [21, 22, 23]
SCRIPT = Script(replies=[Reply(GOOD_PROMPT, GOOD_REPLY)], step_seconds=0.002)
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


@pytest.fixture
def mutate() -> Callable[[random.Random, Frames], Frames]:
    return mutated


@pytest.fixture
def slope_of(pss: Callable[[int], int]) -> Callable[[int], Slope]:
    return lambda pid: Slope(pid, pss)


@pytest.fixture
def good() -> tuple[list[int], list[int]]:
    """A prompt, and what the fuzzed engine replies to it."""
    return GOOD_PROMPT, GOOD_REPLY


@pytest.fixture
def fuzzed_engine(socket_dir: str) -> Callable[[], FakeEngineCore]:
    config: EngineConfig = msgspec.structs.replace(fake_engine_config(socket_dir), log_level="error")
    return lambda: FakeEngineCore(config, SCRIPT)
