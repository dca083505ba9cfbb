"""One operator works at a time: the holder of a Lease."""

import asyncio
import logging
import os
import socket
import time
import uuid
from datetime import UTC, datetime

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import LEASE
from stoker_operator.errors import ApiError, ClusterError, LeaseLostError
from stoker_operator.kube_object import KubeObject

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
"""A holder that has not renewed for this long is taken to be gone. It stops by itself before that: when the next try could end later."""

MAX_TRANSITIONS = 2**31 - 1
"""The API server takes no more."""

RETRY_SECONDS = 2.0
ATTEMPT_SECONDS = 3.0
"""A try on a connection that has gone silent leaves time for another one."""


class Leadership:
    """Times are our own clock's: a Lease is old when it has not changed for LEASE_SECONDS before our eyes, whatever it and its holder's clock say."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self.identity = f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._renewed_at = 0.0

    async def acquire(self) -> None:
        """Returns once we hold the Lease; waits for as long as another one does."""
        told = ""
        while True:
            try:
                holder = await self._try()
            except ClusterError as error:
                holder = f"nobody knows: {error}"
            if holder == self.identity:
                logger.info("Holding the Lease %s/%s as %s", self._namespace, self._name, self.identity)
                return
            if holder != told:
                logger.info("Waiting for the Lease %s/%s: %s", self._namespace, self._name, holder)
                told = holder
            await asyncio.sleep(RETRY_SECONDS)

    async def hold(self) -> None:
        """Renews for ever. Raises LeaseLostError once another one may start."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    holder = await self._try()
            except (ClusterError, TimeoutError) as error:
                if time.monotonic() - self._renewed_at + ATTEMPT_SECONDS + RETRY_SECONDS > LEASE_SECONDS:
                    raise LeaseLostError(f"the Lease {self._namespace}/{self._name} could not be renewed: {error!r}") from error
                logger.warning("Cannot renew the Lease yet: %r", error)
                continue
            if holder != self.identity:
                raise LeaseLostError(f"the Lease {self._namespace}/{self._name} is now held by {holder}")

    async def release(self) -> None:
        """Lets a standby start at once. A failure costs it LEASE_SECONDS, no more."""
        try:
            lease = await self._cluster.get(LEASE, self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._cluster.update(LEASE, lease)
                logger.info("Released the Lease %s/%s", self._namespace, self._name)
        except ClusterError as error:
            logger.warning("Could not release the Lease: %s", error)

    async def _try(self) -> str:
        """Takes or renews the Lease if that is ours to do; its holder afterwards."""
        started = time.monotonic()
        lease = await self._cluster.get(LEASE, self._namespace, self._name)
        try:
            if lease is None:
                await self._cluster.create(LEASE, self._new())
            else:
                spec = lease.get("spec") or {}
                holder = str(spec.get("holderIdentity") or "")
                if holder not in ("", self.identity) and not self._is_old(lease):
                    return holder
                await self._cluster.update(LEASE, {**lease, "spec": self._taken(spec, holder)})
        except ApiError as error:
            if error.status == 409:
                return "another one was quicker"
            raise
        self._renewed_at = started
        return self.identity

    def _is_old(self, lease: KubeObject) -> bool:
        spec = lease["spec"]
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        return time.monotonic() - self._seen_at > LEASE_SECONDS

    def _new(self) -> KubeObject:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": self._taken({}, "")}

    def _taken(self, spec: KubeObject, holder: str) -> KubeObject:
        ours = {"holderIdentity": self.identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now()}
        if holder == self.identity:
            return spec | ours
        transitions = min(int(spec.get("leaseTransitions") or 0) + (1 if spec else 0), MAX_TRANSITIONS)
        return spec | ours | {"acquireTime": _now(), "leaseTransitions": transitions}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
