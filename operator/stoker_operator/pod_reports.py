"""What a pod's api says of itself: /startupz, /readyz and /load, asked over the pod's own address."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, TypeVar

import httpx
import msgspec

from stoker_operator.names import HTTP_PORT, LOAD_PATH, READINESS_PATH, STARTUP_PATH

LIMIT_SECONDS = 2.0
"""All three answers together: a pod that does not answer holds up no reconcile."""
MAX_BODY_BYTES = 65536
"""Whoever serves at a pod's address may be anybody's program."""

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


@dataclass(frozen=True, slots=True)
class PodReport:
    """None: not known, because the pod did not answer in time or with nothing that can be read."""

    startup: Startup | None = None
    readiness: Readiness | None = None
    load: Load | None = None

    @property
    def num_in_flight(self) -> int:
        """0 where it is not known: such a pod may go first."""
        return 0 if self.load is None else self.load.in_flight


UNKNOWN = PodReport()

AnswerT = TypeVar("AnswerT", Startup, Readiness, Load)


class PodReporter:
    """Asks pods. Meant for those that are not ready, and before replicas are taken away: a ready pod's probes are the kubelet's."""

    def __init__(self, client: httpx.AsyncClient, port: int = HTTP_PORT) -> None:
        self._client = client
        self._port = port

    async def ask(self, pod_ip: str) -> PodReport:
        """Never raises for a pod that does not answer, or answers nonsense: that is not known."""
        if not pod_ip:
            return UNKNOWN
        host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
        base = f"http://{host}:{self._port}"
        startup, readiness, load = await asyncio.gather(
            self._get(base + STARTUP_PATH, Startup), self._get(base + READINESS_PATH, Readiness), self._get(base + LOAD_PATH, Load)
        )
        return PodReport(startup, readiness, load)

    async def _get(self, url: str, answer_type: type[AnswerT]) -> AnswerT | None:
        """503 has a body too: it is what a pod that is not ready answers."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                return msgspec.json.decode(await self._read(url), type=answer_type)
        except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError):
            return None

    async def _read(self, url: str) -> bytes:
        """As it was sent: a compressed answer would unfold to a thousand times what the limit sees."""
        body = bytearray()
        async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return b""
        return bytes(body)
