"""What a pod's api says of itself: /readyz, /startupz and /load, asked over the pod's own address."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from stoker_operator.api_answers import Load, Readiness, Startup
from stoker_operator.names import HTTP_PORT, LOAD_PATH, READINESS_PATH, STARTUP_PATH

LIMIT_SECONDS = 2.0
"""All three answers together: a pod that does not answer holds up no reconcile."""
MAX_BODY_BYTES = 65536
"""Whoever serves at a pod's address may be anybody's program."""
AT_ONCE = 16
"""Pods of one InferenceDeployment that are asked at a time."""
LAST_SECONDS = 4.0
"""No other one is asked after this: many pods that do not answer hold up no reconcile either."""


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


def pod_client() -> httpx.AsyncClient:
    """Connections to pods are bounded by who asks, not in all: the silent pods of one InferenceDeployment keep nobody from asking others."""
    return httpx.AsyncClient(timeout=LIMIT_SECONDS, trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE))


class PodReporter:
    """Asks pods. Meant for those that are not ready, and before replicas are taken away: a ready pod's probes are the kubelet's."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask_all(self, addresses: Mapping[str, str]) -> dict[str, PodReport]:
        """The reports of one InferenceDeployment's pods, by the names that their addresses have."""
        places, last = asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time() + LAST_SECONDS

        async def ask(address: str) -> PodReport:
            async with places:
                return await self.ask(address) if asyncio.get_running_loop().time() < last else UNKNOWN

        return dict(zip(addresses, await asyncio.gather(*map(ask, addresses.values())), strict=True))

    async def ask(self, pod_ip: str) -> PodReport:
        """Never raises for a pod that does not answer, or answers nonsense: that is not known. One that does not answer at /readyz is asked nothing else."""
        if not pod_ip:
            return UNKNOWN
        host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
        base, until = f"http://{host}:{HTTP_PORT}", asyncio.get_running_loop().time() + LIMIT_SECONDS
        readiness = await self._get(base + READINESS_PATH, Readiness, until)
        if readiness is None:
            return UNKNOWN
        startup, load = await asyncio.gather(self._get(base + STARTUP_PATH, Startup, until), self._get(base + LOAD_PATH, Load, until))
        return PodReport(startup, readiness, load)

    async def _get(self, url: str, answer_type: type[AnswerT], until: float) -> AnswerT | None:
        """503 has a body too: it is what a pod that is not ready answers. `until` is the event loop's time."""
        try:
            async with asyncio.timeout_at(until):
                return msgspec.json.decode(await self._read(url), type=answer_type)
        except (httpx.HTTPError, msgspec.MsgspecError, RecursionError, TimeoutError):
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
