"""The condition Routable: what the gateways make of an InferenceDeployment, written into its status."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from stoker_gateway.router.cluster.api_server import ApiServer, ApiServerError
from stoker_gateway.router.cluster.kubernetes_source import KubernetesSource
from stoker_gateway.router.cluster.names import API_VERSION, INFERENCE_DEPLOYMENTS, KIND
from stoker_gateway.router.cluster.objects import DeploymentObject
from stoker_gateway.router.fleet import Fleet
from stoker_gateway.router.name_claims import full_name
from stoker_gateway.router.served_model import ServedModel

logger = logging.getLogger(__name__)

TYPE = "Routable"

MIN_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 3.0
"""Between a change and the write, at random: of the gateways that all saw it one writes, and the others see that it has."""

AGAIN_SECONDS = 10.0
"""Between two writes to one object: gateways that see different things for a while don't fight about it."""

PASSING = (404, 409)
"""The object is gone, or not as it was looked at: the next look is at what it is then."""


class RoutableWriter:
    """One in each gateway; all write the same, and only what differs from what is there."""

    def __init__(self, server: ApiServer, source: KubernetesSource, fleet: Fleet) -> None:
        self._server = server
        self._source = source
        self._fleet = fleet
        self._news = asyncio.Event()
        self._written: dict[str, float] = {}
        """When this gateway last wrote to each uid."""
        self._told = ""
        fleet.listeners.append(lambda _: self._news.set())

    async def run(self) -> None:
        """For ever, whatever fails."""
        while True:
            await self._news.wait()
            await asyncio.sleep(random.uniform(MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
            self._news.clear()
            try:
                is_done = await self._write_all()
                self._told = ""
            except ApiServerError as error:
                is_done = False
                await self._rest(error)
            if not is_done:
                self._news.set()

    async def _write_all(self) -> bool:
        """Whether everything is as it should be. Raises ApiServerError for what the next object would meet, too."""
        models = {model.view.uid: model for model in self._fleet.models}
        self._written = {uid: when for uid, when in self._written.items() if uid in models}
        is_done = True
        for obj in self._source.deployments.values():
            model = models.get(obj.uid)
            if model is None or (condition := routable(model, obj, datetime.now(UTC))) is None:
                continue
            is_done = False
            if time.monotonic() - self._written.get(obj.uid, -AGAIN_SECONDS) >= AGAIN_SECONDS:
                await self._write(obj, condition)
        return is_done

    async def _write(self, obj: DeploymentObject, condition: dict[str, Any]) -> None:
        namespace, name = obj.key
        # Only over what was looked at: another object may have got the name.
        metadata = {"namespace": namespace, "name": name, "resourceVersion": obj.version[1]}
        manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": {"conditions": [condition]}}
        try:
            await self._server.apply_status(INFERENCE_DEPLOYMENTS, manifest)
        except ApiServerError as error:
            if error.status is None or error.status in (401, 403, 429) or error.status >= 500:
                raise
            if error.status in PASSING:
                return
            logger.warning("The condition %s of %s/%s is refused: %s", TYPE, namespace, name, error)
        self._written[obj.uid] = time.monotonic()

    async def _rest(self, error: ApiServerError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            logger.warning("The condition %s cannot be written; serving goes on: %s", TYPE, error)
        await asyncio.sleep(AGAIN_SECONDS)


def routable(model: ServedModel, obj: DeploymentObject, now: datetime) -> dict[str, Any] | None:
    """The condition as it should be; None where it is so already."""
    status, reason, message = _find(model)
    before: Mapping[str, Any] = next((each for each in obj.conditions if each.get("type") == TYPE), {})
    wanted = {"type": TYPE, "status": status, "reason": reason, "message": message, "observedGeneration": obj.generation}
    if all(before.get(name) == value for name, value in wanted.items()):
        return None
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {**wanted, "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _find(model: ServedModel) -> tuple[str, str, str]:
    names = ", ".join(dict.fromkeys((*model.names, full_name(model.view))))
    if model.names_taken:
        taken = "; ".join(f"the name {name} belongs to {owner}" for name, owner in model.names_taken)
        return "False", "NameTaken", f"{taken[0].upper()}{taken[1:]}. This one is served as {names}; choose another name for it."
    if not any(endpoint.is_ready for endpoint in model.endpoints):
        return "False", "NoReadyReplicas", "The gateway knows no ready replica."
    return "True", "Served", f"The gateway serves it as {names}."
