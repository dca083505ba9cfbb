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


async def warn_of_old_crd(cluster: Cluster) -> None:
    """A line for each field that is missing. Where we may not read the CustomResourceDefinition, nothing is known."""
    try:
        live = await cluster.get(CUSTOM_RESOURCE_DEFINITION, None, f"{PLURAL}.{GROUP}")
    except ApiError as error:
        logger.info("The CustomResourceDefinition's age is not checked: %s", error.message)
        return
    for path in missing_fields(custom_resource_definition(), live or {}):
        logger.warning("The CustomResourceDefinition is older than this operator: it has no %s, which the API server drops; apply `stoker crd`", path)


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
