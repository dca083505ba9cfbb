"""Whether the cluster's CustomResourceDefinition is there, and is not older than our structs: the API server drops the fields that it does not know."""

import asyncio
import logging
from collections.abc import Iterator

from stoker_operator.cluster import Cluster
from stoker_operator.cluster_kinds import CUSTOM_RESOURCE_DEFINITION, INFERENCE_DEPLOYMENT
from stoker_operator.crd import custom_resource_definition
from stoker_operator.errors import ApiError, ClusterError
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import GROUP, PLURAL, VERSION
from stoker_operator.progress import Phase, Progress

logger = logging.getLogger(__name__)

REMEDY = "which the API server drops; apply `stoker crd`"

POLL_SECONDS = 2.0
LOG_SECONDS = 60.0


async def wait_for_crd(cluster: Cluster, progress: Progress) -> None:
    """Returns once the API server serves InferenceDeployments; says each minute what it waits for."""
    silent = LOG_SECONDS
    while True:
        try:
            if await cluster.serves(INFERENCE_DEPLOYMENT):
                return
            problem = Phase.WAITING_FOR_CRD.value
        except ClusterError as error:
            problem = str(error)
        progress.phase = Phase.WAITING_FOR_CRD
        if silent >= LOG_SECONDS:
            logger.warning("Not ready: %s", problem)
            silent = 0.0
        await asyncio.sleep(POLL_SECONDS)
        silent += POLL_SECONDS


class CrdCheck:
    """`missing`: the fields that the CustomResourceDefinition lacked at the last look. Where we may not read it, nothing is known."""

    def __init__(self, cluster: Cluster) -> None:
        self.missing: tuple[str, ...] = ()
        self._cluster = cluster
        self._told: frozenset[str] = frozenset()

    async def look(self) -> None:
        """A line of the log for each field that is newly missing. Raises ClusterError where the API server does not answer."""
        try:
            live = await self._cluster.get(CUSTOM_RESOURCE_DEFINITION, None, f"{PLURAL}.{GROUP}")
        except ApiError as error:
            self._tell(logging.INFO, f"The CustomResourceDefinition's age is not checked: {error.message}")
            return
        self.missing = () if live is None else tuple(missing_fields(custom_resource_definition(), live))
        self._tell(logging.WARNING, *(f"The CustomResourceDefinition is older than this operator: it has no {path}, {REMEDY}" for path in self.missing))

    def _tell(self, level: int, *lines: str) -> None:
        """Those that the last look did not tell."""
        for line in lines:
            if line not in self._told:
                logger.log(level, "%s", line)
        self._told = frozenset(lines)


def missing_fields(ours: KubeObject, live: KubeObject) -> list[str]:
    """The fields of our schema that `live` lacks, outermost only."""
    return list(_missing(_schema(ours), _schema(live), ""))


def _missing(ours: KubeObject, live: KubeObject, path: str) -> Iterator[str]:
    properties = live.get("properties") or {}
    for name, schema in (ours.get("properties") or {}).items():
        if name not in properties:
            yield f"{path}{name}"
        else:
            yield from _missing(schema, properties[name], f"{path}{name}.")
    if isinstance(ours.get("items"), dict) and isinstance(live.get("items"), dict):
        yield from _missing(ours["items"], live["items"], path)


def _schema(crd: KubeObject) -> KubeObject:
    versions = (crd.get("spec") or {}).get("versions") or ()
    found: KubeObject = next((version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == VERSION), {})
    return found
