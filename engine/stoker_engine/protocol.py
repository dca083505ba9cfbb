"""What travels between an api and its engine: the msgspec structs, their encoder and decoders, the frames. No logic, no torch, no pickle.

Handshake link (api ROUTER, engine DEALER): one frame, a tagged struct. Engine → api: Hello, PhaseReport, EngineCoreReadyResponse, Heartbeat.
Api → engine: EngineHandshakeMetadata, ClientHeartbeat.

Input link (api ROUTER, engine DEALER): `[client incarnation][request type][body]`; the engine opens it with
`[client incarnation][engine identity]`, so that the api knows where the engine is.

Output link (engine PUSH, api PULL): `[client incarnation][engine identity][body]`, where body is an EngineCoreOutputs or ENGINE_CORE_DEAD.
"""

import enum
import os
import struct
from typing import Any

import msgspec

from stoker_engine.finish_reason import FinishReason
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.stats import SchedulerStats

PROTOCOL_VERSION = 1
"""Sent in Hello and EngineHandshakeMetadata; the two ends must agree."""

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""The last body of a failing engine."""

INCARNATION_BYTES = 8
HEARTBEAT_SECONDS = 1.0
UNRESPONSIVE_SECONDS = 3.0
"""A peer not heard of for this long is unresponsive."""

_IDENTITY = struct.Struct(f"<H{INCARNATION_BYTES}s")


def new_incarnation() -> bytes:
    """8 random bytes that name one life of one process."""
    return os.urandom(INCARNATION_BYTES)


def engine_identity(engine_index: int, incarnation: bytes) -> bytes:
    """The ZMQ identity of an engine: its index (2 bytes, little-endian) and its incarnation."""
    return _IDENTITY.pack(engine_index, incarnation)


def parse_identity(identity: bytes) -> tuple[int, bytes]:
    """The engine index and incarnation in an identity. Raises ValueError for anything else."""
    if len(identity) != _IDENTITY.size:
        raise ValueError(f"an engine identity has {_IDENTITY.size} bytes, not {len(identity)}")
    index, incarnation = _IDENTITY.unpack(identity)
    return index, incarnation


class EngineCoreRequestType(bytes, enum.Enum):
    """The type frame of an input message."""

    ADD = b"\x00"
    ABORT = b"\x01"
    UTILITY = b"\x03"


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One request as the engine sees it. `request_id` is internal: unique over all clients, never reused.

    `eos_token_ids` are the model's own ends (empty with ignore_eos); `bad_words_token_ids` are the tokenized `bad_words`. `sampling_params.max_tokens`
    is never None here. `arrival_time` is wall-clock seconds.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time: float
    eos_token_ids: list[int] = []
    bad_words_token_ids: list[list[int]] = []
    priority: int = 0
    cache_salt: str | None = None
    client_index: int = 0
    external_request_id: str | None = None
    trace_headers: dict[str, str] | None = None


class EngineCoreEventType(enum.IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class EngineCoreEvent(msgspec.Struct, array_like=True, gc=False):
    """`timestamp` is the engine's monotonic clock: comparable with other events and `EngineCoreOutputs.timestamp` of the same process only."""

    type: EngineCoreEventType
    timestamp: float


class LogprobsLists(msgspec.Struct, array_like=True, gc=False):
    """Log probabilities of consecutive positions, one row each: the sampled (or prompt) token first, then the requested ones, most likely first.

    `ranks[i]` is the rank, from 1, of row i's first token.
    """

    token_ids: list[list[int]]
    logprobs: list[list[float]]
    ranks: list[int]


class PrefillStats(msgspec.Struct, array_like=True, gc=False):
    """Sent once, with a request's first output: its prompt's tokens, and how many of them the prefix cache served."""

    num_prompt_tokens: int
    num_cached_tokens: int


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step did for one request. `failure_message` says why with FinishReason.ERROR."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs: LogprobsLists | None = None
    events: list[EngineCoreEvent] | None = None
    prefill_stats: PrefillStats | None = None
    failure_message: str | None = None
    trace_headers: dict[str, str] | None = None


class PauseMode(enum.StrEnum):
    """What becomes of live requests when the engine pauses: ended, finished (new ones wait), or kept as they are."""

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


class SleepTag(enum.StrEnum):
    """What a sleeping engine wakes one by one: what it gave back, and, of an engine that gave back nothing, its scheduling."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    SCHEDULING = "scheduling"


class UtilityRequest(msgspec.Struct, array_like=True, gc=False):
    """A call of one of the engine's utility methods. `call_id` is the client's."""

    call_id: int
    method: str
    args: list[Any] = []


class UtilityOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The answer to a UtilityRequest: exactly one of `failure_message` and `result` counts."""

    call_id: int
    failure_message: str | None = None
    result: Any = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One step's outputs for one client. `timestamp` is the engine's monotonic clock."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None


class EnginePhase(enum.StrEnum):
    """Where an engine is in its life."""

    STARTING = "starting"
    LOADING = "loading"
    PROFILING = "profiling"
    WARMING_UP = "warming_up"
    READY = "ready"
    SLEEPING = "sleeping"
    DRAINING = "draining"
    FAILED = "failed"


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The engine's first word on each connection. The identity frame carries its index and incarnation."""

    protocol_version: int
    pid: int


class PhaseReport(msgspec.Struct, tag="phase", array_like=True):
    """`progress` is 0 to 1 within the phase; `seconds` since the phase began; `message` is the engine's own words on a failure."""

    phase: EnginePhase
    progress: float = 0.0
    seconds: float = 0.0
    message: str = ""


class EngineCoreReadyResponse(msgspec.Struct, tag="ready", array_like=True):
    """The engine serves: its capacity."""

    max_model_len: int
    max_num_seqs: int
    max_logprobs: int
    num_blocks: int
    block_size: int
    vocab_size: int
    dtype: str
    version: str
    priority_scheduling: bool
    prefix_caching: bool


class Heartbeat(msgspec.Struct, tag="heartbeat", array_like=True):
    """The engine's pulse: steps so far, seconds since the loop last turned, and since the running step began (0 when none runs)."""

    num_steps: int
    loop_age: float
    step_age: float
    num_requests: int


class EngineHandshakeMetadata(msgspec.Struct, tag="init", array_like=True):
    """The api's answer to Hello: who it is. The socket addresses follow from the shared directory."""

    protocol_version: int
    client_incarnation: bytes


class ClientHeartbeat(msgspec.Struct, tag="client_heartbeat", array_like=True):
    """The api's pulse."""


EngineHandshakeMessage = Hello | PhaseReport | EngineCoreReadyResponse | Heartbeat
ClientHandshakeMessage = EngineHandshakeMetadata | ClientHeartbeat

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(EngineCoreRequest).decode
decode_request_ids = msgspec.msgpack.Decoder(list[str]).decode
decode_utility_request = msgspec.msgpack.Decoder(UtilityRequest).decode
decode_outputs = msgspec.msgpack.Decoder(EngineCoreOutputs).decode
decode_engine_handshake = msgspec.msgpack.Decoder(EngineHandshakeMessage).decode
decode_client_handshake = msgspec.msgpack.Decoder(ClientHandshakeMessage).decode
