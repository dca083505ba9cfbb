"""What an api says of itself at /startupz, /readyz and /load: as much as is read of it, within bounds, for whoever answers there may be anybody's program."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PhaseSeconds = Annotated[dict[str, Annotated[float, msgspec.Meta(ge=0, le=1e9)]], msgspec.Meta(max_length=16)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Startup(msgspec.Struct, frozen=True, rename="camel"):
    """How far the engine has come, as /startupz has it. `seconds` is how long the phase has lasted, `message` its words on a failure or on what it waits for.

    `start_seconds` is how long each phase of the start took that is over. The rest is of a model that is downloaded: `revision` is its commit, `size_bytes`
    that of the files that the engine needs, `bytes` what of them is there.
    """

    phase: str
    progress: Share = 0.0
    seconds: float = 0.0
    message: str = ""
    revision: str | None = None
    size_bytes: Count | None = None
    bytes: Count | None = None
    bytes_per_second: Count | None = None
    eta_seconds: Count | None = None
    start_seconds: PhaseSeconds = {}


class Readiness(msgspec.Struct, frozen=True):
    """Why requests would not be served, as /readyz has it. `engine` is the engine's state."""

    status: str
    engine: str = ""
    reason: str = ""


class Load(msgspec.Struct, frozen=True, rename="camel"):
    """How busy the api is, as /load has it."""

    in_flight: Count
    running: Count = 0
    waiting: Count = 0
    draining: bool = False
    kv_cache_usage: Share = 0.0
