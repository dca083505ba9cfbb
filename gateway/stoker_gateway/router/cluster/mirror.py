"""Mirror: the objects of one kind as the API server has them. Lists, watches for a while, lists anew: what a watch lost is found, whatever the reason."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from stoker_gateway.router.cluster.api_server import ApiServer, ApiServerError, Query

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 5.0
SHORT_SECONDS = 1.0
"""A watch that lives shorter has failed, however it ends: listing at once again and again would be what brings an API server down."""


class _Identity(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _Identified(msgspec.Struct):
    metadata: _Identity


_decode_identity = msgspec.json.Decoder(_Identified).decode


class Mirrored(Protocol):
    """What is kept of an object."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""

    @property
    def version(self) -> tuple[str, str]:
        """Its uid and resourceVersion: the same where nothing changed."""


MirroredT = TypeVar("MirroredT", bound=Mirrored)


class Mirror(Generic[MirroredT]):
    """`decode` gives None for an object that cannot be read at all, which then is as if it were not there."""

    def __init__(self, query: Query, decode: Callable[[msgspec.Raw], MirroredT | None], on_change: Callable[[], None]) -> None:
        self.objects: dict[tuple[str, str], MirroredT] = {}
        """The last that is known, also while the API server is away."""
        self.is_synced = False
        """Whether everything was listed once."""
        self._query = query
        self._decode = decode
        self._on_change = on_change
        self._num_failures = 0
        self._told = ""

    async def run(self, server: ApiServer, resync_seconds: float) -> None:
        """For ever, whatever fails. `resync_seconds` after a list at the latest comes the next one, and that is how old a lost deletion can get."""
        while True:
            started = time.monotonic()
            try:
                listed = await server.list(self._query)
                self._take_over(listed.items)
                # Gateways that started together, or lost the same API server, spread.
                async for event in server.watch(self._query, listed.version, resync_seconds * random.uniform(0.8, 1.0)):
                    self._take_event(event.type, event.object)
            except ApiServerError as error:
                self._tell(error)
            else:
                self._told = ""
            is_short = time.monotonic() - started < min(SHORT_SECONDS, resync_seconds / 2)
            self._num_failures = self._num_failures + 1 if is_short else 0
            if self._num_failures:
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._num_failures - 1, 10)))

    def _take_over(self, items: list[msgspec.Raw]) -> None:
        before = self.objects
        self.objects = {obj.key: obj for item in items if (obj := self._known(item) or self._decode(item)) is not None}
        was_synced, self.is_synced = self.is_synced, True
        if self._told:
            self._told = ""
            logger.info("%s is listed again, %d objects", self._query.path, len(self.objects))
        if not was_synced or self.objects != before:
            self._on_change()

    def _known(self, item: msgspec.Raw) -> MirroredT | None:
        """An object that is the same stays the same: nothing is read or made of it anew."""
        try:
            metadata = _decode_identity(item).metadata
        except msgspec.MsgspecError:
            return None
        known = self.objects.get((metadata.namespace, metadata.name))
        return known if known is not None and known.version == (metadata.uid, metadata.resource_version) else None

    def _take_event(self, event_type: str, raw: msgspec.Raw) -> None:
        if event_type not in ("ADDED", "MODIFIED", "DELETED") or (obj := self._decode(raw)) is None:
            return
        if event_type == "DELETED":
            self.objects.pop(obj.key, None)
        else:
            self.objects[obj.key] = obj
        self._on_change()

    def _tell(self, error: ApiServerError) -> None:
        """Once for each trouble. A watch that expired (410) is none: the next list heals it."""
        message = str(error)
        if message != self._told and error.status != 410:
            self._told = message
            logger.warning("%s cannot be watched; what is known goes on being served: %s", self._query.path, message)
