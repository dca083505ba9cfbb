"""What is wrong with the Secret of API keys, as an Event beside it: where those look who made it."""

import asyncio
import hashlib
import logging
import os
from datetime import UTC, datetime
from typing import Any

from stoker_gateway.router.admission.key_ring import KeyRing
from stoker_gateway.router.cluster.api_server import ApiServer, ApiServerError
from stoker_gateway.router.cluster.names import EVENTS, FIELD_MANAGER

logger = logging.getLogger(__name__)

REASON = "InvalidApiKeys"
LOOK_SECONDS = 2.0
AGAIN_SECONDS = 1800.0
"""A fault that stays is told again: the API server forgets events after an hour."""

RETRY_SECONDS = 30.0
"""After the API server did not take it."""

MAX_NOTE_BYTES = 1024
CONFLICT = 409


class KeyEvents:
    """`secret` is its namespace/name. All gateways tell the same once: the Event's name follows from what it says."""

    def __init__(self, server: ApiServer, secret: str, keys: KeyRing) -> None:
        self._server = server
        self._namespace, _, self._name = secret.partition("/")
        self._keys = keys

    async def run(self) -> None:
        """For ever, whatever fails."""
        loop = asyncio.get_running_loop()
        told: tuple[str, ...] = ()
        again = 0.0
        while True:
            faults = self._keys.faults
            if faults and (faults != told or loop.time() > again):
                again = loop.time() + (AGAIN_SECONDS if await self._tell(faults) else RETRY_SECONDS)
            told = faults
            await asyncio.sleep(LOOK_SECONDS)

    async def _tell(self, faults: tuple[str, ...]) -> bool:
        """Whether the API server has it now."""
        try:
            await self._server.create(EVENTS, self._event("; ".join(faults)))
        except ApiServerError as error:
            if error.status == CONFLICT:  # another gateway has told it
                return True
            logger.warning("The Event about the Secret %s/%s cannot be written: %s", self._namespace, self._name, error)
            return False
        return True

    def _event(self, text: str) -> dict[str, Any]:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        note = f"Not all API keys can be used; the others can: {text}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": self._namespace, "name": f"{self._name[:200]}.{digest}"},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning",
            "reason": REASON,
            "action": "ReadApiKeys",
            "note": note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {"apiVersion": "v1", "kind": "Secret", "namespace": self._namespace, "name": self._name},
            "reportingController": f"stoker.dev/{FIELD_MANAGER}",
            "reportingInstance": os.uname().nodename[:128],
        }
