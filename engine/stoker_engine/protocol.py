"""What travels between an api and its engine: the msgspec structs, their limits, the frames. No logic, no torch, no pickle.

Handshake link (api ROUTER, engine DEALER): one frame, a tagged struct. Engine → api: Hello, PhaseReport, EngineCoreReadyResponse, Heartbeat.
Api → engine: EngineHandshakeMetadata, ClientHeartbeat.

Input link (api ROUTER, engine DEALER): `[client incarnation][request type][body][array…]`; the engine opens it with
`[client incarnation][engine identity][number of the link]`, so that the api knows where the engine is. The number is 8 bytes, big-endian, and grows:
what was sent over a link that is closed already may arrive after what was sent over the next one.

Output link (engine PUSH, api PULL): `[client incarnation][engine identity][body][array…]`, where body is an EngineCoreOutputs or ENGINE_CORE_DEAD.

Arrays of 256 bytes and more have frames of their own (serialization.py).
"""

import enum
import os
import struct
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from stoker_engine.finish_reason import FinishReason
from stoker_engine.sampling_params import SamplingParams
from stoker_engine.serialization import safe_decoder
from stoker_engine.stats import SchedulerStats

PROTOCOL_VERSION = 2
"""Sent in Hello and EngineHandshakeMetadata; the two ends must agree. Raised with every change of a message's fields, those of what it holds included:
messages are lists, and what one end does not know, the other drops without a word."""

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""The last body of a failing engine."""

INCARNATION_BYTES = 8
HEARTBEAT_SECONDS = 1.0
UNRESPONSIVE_SECONDS = 3.0
"""A peer not heard of for this long is unresponsive."""

MAX_REQUEST_ID_LENGTH = 1024
"""In characters. The api's own are shorter; a library's caller may bring longer ones."""
MAX_ARRAY_FRAMES = 64
"""Of one input message."""

MAX_OTHER_BYTES = 4 << 20
"""Of a request beside its prompt and `allowed_token_ids`. Most of it is for the token ids of bad words."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
RequestId = Annotated[str, msgspec.Meta(max_length=MAX_REQUEST_ID_LENGTH)]

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

    request_id: RequestId
    prompt_token_ids: list[TokenId]
    sampling_params: SamplingParams
    arrival_time: float
    eos_token_ids: list[TokenId] = []
    bad_words_token_ids: list[list[TokenId]] = []
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
    """Log probabilities of sampled tokens, one row each: the sampled token first, then the requested ones, most likely first.

    `ranks[i]` is the rank, from 1, of row i's first token.
    """

    token_ids: list[list[TokenId]]
    logprobs: list[list[float]]
    ranks: list[int]

    def __post_init__(self) -> None:
        lengths = list(map(len, self.token_ids))
        if not len(lengths) == len(self.logprobs) == len(self.ranks) or lengths != list(map(len, self.logprobs)) or 0 in lengths:
            raise ValueError("log probabilities need rows of the same lengths, none of them empty")


class LogprobsArrays(msgspec.Struct, array_like=True, eq=False, gc=False):
    """Log probabilities of a prompt: `token_ids` and `logprobs` are [positions, 1 + requested], the prompt's own token first; `ranks` is [positions]."""

    token_ids: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        shape = self.token_ids.shape
        if len(shape) != 2 or shape[1] < 1 or self.logprobs.shape != shape or self.ranks.shape != shape[:1]:
            raise ValueError(f"log probabilities of shapes {shape}, {self.logprobs.shape} and {self.ranks.shape} do not belong together")
        if self.token_ids.size and self.token_ids.min() < 0:
            raise ValueError("token ids cannot be negative")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogprobsArrays):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)


class PrefillStats(msgspec.Struct, array_like=True, gc=False):
    """Sent once, with a request's first output: its prompt's tokens, and how many of them the prefix cache served."""

    num_prompt_tokens: int
    num_cached_tokens: int


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step did for one request. `failure_message` says why with FinishReason.ERROR; `failed_parameter` is the parameter that is at fault, None
    where the request is not. `may_be_retried`: by what others take of the engine, so that the same request may do better a little later."""

    request_id: RequestId
    new_token_ids: list[TokenId]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs: LogprobsArrays | None = None
    events: list[EngineCoreEvent] | None = None
    prefill_stats: PrefillStats | None = None
    failure_message: str | None = None
    trace_headers: dict[str, str] | None = None
    failed_parameter: str | None = None
    may_be_retried: bool = False


class EnginePhase(enum.StrEnum):
    """Where an engine is in its life."""

    STARTING = "starting"
    DOWNLOADING = "downloading"
    LOADING = "loading"
    PROFILING = "profiling"
    WARMING_UP = "warming_up"
    READY = "ready"
    SLEEPING = "sleeping"
    DRAINING = "draining"
    FAILED = "failed"


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
    """The answer to a UtilityRequest: exactly one of `failure_message` and `result` counts.

    `phase_number` is that of the engine's phase after the call, which it has reported over the handshake link: the caller sees both together.
    """

    call_id: int
    failure_message: str | None = None
    result: Any = None
    phase_number: int = 0


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One step's outputs for one client. `timestamp` is the engine's monotonic clock."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The engine's first word on each connection. The identity frame carries its index and incarnation."""

    protocol_version: int
    pid: int


class ModelDownload(msgspec.Struct, array_like=True, frozen=True):
    """An hf:// model: `revision` is the commit, empty until the hub has told it; `size_bytes` counts the files that the engine needs, `bytes` what of them
    the cache holds. Rate and rest are None where there is nothing to download, or nothing known yet."""

    revision: str = ""
    size_bytes: int = 0
    bytes: int = 0
    bytes_per_second: float | None = None
    eta_seconds: float | None = None

    @property
    def share(self) -> float:
        """Of the bytes, 0 to 1."""
        return self.bytes / self.size_bytes if self.size_bytes else 0.0


class PhaseReport(msgspec.Struct, tag="phase", array_like=True):
    """`progress` is 0 to 1 within the phase; `seconds` since the phase began; `message` is the engine's own words on a failure, or what it waits for.

    `number` counts the engine's phases. `download` stays for the engine's life, where the model is an hf:// one; `start_seconds`, how long each phase of the
    start took that is over, stays in any case.
    """

    phase: EnginePhase
    progress: float = 0.0
    seconds: float = 0.0
    message: str = ""
    number: int = 0
    download: ModelDownload | None = None
    start_seconds: dict[str, float] = {}


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


def max_body_bytes(ready: EngineCoreReadyResponse) -> int:
    """The largest input message that this engine takes: as many token ids as a prompt and `allowed_token_ids` may have, 5 bytes each, and the rest."""
    return 5 * (ready.max_model_len + ready.vocab_size) + MAX_OTHER_BYTES


encode = msgspec.msgpack.Encoder().encode
decode_request = safe_decoder(EngineCoreRequest)
decode_request_ids = safe_decoder(list[RequestId])
decode_engine_handshake: Callable[[bytes | memoryview], EngineHandshakeMessage] = safe_decoder(cast(type[EngineHandshakeMessage], EngineHandshakeMessage))
decode_client_handshake: Callable[[bytes | memoryview], ClientHandshakeMessage] = safe_decoder(cast(type[ClientHandshakeMessage], ClientHandshakeMessage))
