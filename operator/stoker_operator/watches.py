"""kopf's part: one watch for each kind, and nothing but on.event, so that it writes nothing to any object."""

from collections.abc import Collection
from typing import Any

import kopf
from kubernetes.aio.client.configuration import Configuration

from stoker_operator.cluster_kinds import INFERENCE_DEPLOYMENT, ClusterKind
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.watch_feed import WatchFeed

SERVER_SECONDS = 40
"""The API server ends a watch after this; kopf begins the next one where it ended."""

CLIENT_SECONDS = 45.0
"""A watch of which even the end does not arrive is a dead connection."""

CONNECT_SECONDS = 5.0


def watch_registry(kinds: Collection[ClusterKind], feed: WatchFeed, configuration: Configuration) -> kopf.OperatorRegistry:
    """Handlers of our own registry: kopf's global one belongs to whoever imports us."""
    registry = kopf.OperatorRegistry()
    for kind in kinds:
        _watch(registry, kind, feed)

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(configuration)

    return registry


def _watch(registry: kopf.OperatorRegistry, kind: ClusterKind, feed: WatchFeed) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **event["object"]}
        if event["type"] == "DELETED":
            feed.deleted(obj)
        else:
            feed.changed(obj)


def watch_settings(kinds: Collection[ClusterKind]) -> kopf.OperatorSettings:
    """No peering, no Events of kopf's, no scan for new kinds, and an end to every connection."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.peering.standalone = True
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = CLIENT_SECONDS
    settings.watching.inactivity_timeout = CLIENT_SECONDS
    settings.watching.connect_timeout = CONNECT_SECONDS
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.networking.request_timeout = 60
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 0.5
    settings.persistence.diffbase_storage = _NoDiffBase()
    for kind in kinds:
        if kind is not INFERENCE_DEPLOYMENT:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = INFERENCE_DEPLOYMENT_LABEL
    return settings


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf copies each object it sees to compare it with a snapshot kept in an annotation; we keep none and compare nothing."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


async def _connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """kopf's own connections, by the credentials of ours; it asks again when they have expired."""
    header = (await configuration.auth_settings()).get("BearerToken", {}).get("value") or ""
    scheme, _, token = header.rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
