"""The model's files: how far their download is, and the condition ModelCached. Only of a model that is downloaded."""

import re

from stoker_engine.model_files import is_on_hub
from stoker_operator.api_answers import Startup
from stoker_operator.observed import Observed
from stoker_operator.status.conditions import Finding
from stoker_operator.status.ends import failures_of
from stoker_operator.status.objects import Pod
from stoker_operator.status.replicas import Replicas
from stoker_operator.status.text import one_line
from stoker_operator.status_types import DownloadStatus, ModelStatus
from stoker_operator.v1alpha1 import InferenceDeployment

DOWNLOADING = "downloading"
"""The phase in which an engine, or an api, waits for the model's files."""

BEFORE_DOWNLOAD = frozenset({"", "starting", "waiting_for_engine", "failed", DOWNLOADING})
DOWNLOAD_FAILURES = frozenset({"AuthRequired", "DiskFull", "DownloadFailed"})
"""The programs' reasons, which are the condition's too."""

RATE_LIMIT = "(429)"
"""In what an engine says it waits for."""

COMMIT = re.compile(r"[0-9a-f]{40}")


def find_model_cached(deployment: InferenceDeployment | None, observed: Observed, replicas: Replicas) -> Finding | None:
    """None for a model that is not downloaded."""
    if deployment is None or not is_on_hub(deployment.spec.model.uri):
        return None
    if any(_has_files(observed, pod) for pod in replicas.updated):
        return Finding("ModelCached", "True", "Cached", "The model's files are there.")
    failed = next((end for pod in replicas.updated for end in failures_of(pod) if end.reason in DOWNLOAD_FAILURES), None)
    if failed is not None:
        return Finding("ModelCached", "False", failed.reason, one_line(f"Pod {failed.pod}: {failed.message}"))
    furthest = _furthest(observed, replicas)
    if furthest is None or furthest.phase != DOWNLOADING:
        return Finding("ModelCached", "Unknown", "Downloading", "No pod has told yet whether the model's files are there.")
    words = f": {furthest.message}" if furthest.message else ""
    return Finding("ModelCached", "False", "RateLimited" if RATE_LIMIT in furthest.message else "Downloading", one_line(f"{_share(furthest)}{words}."))


def find_model(deployment: InferenceDeployment | None, observed: Observed, replicas: Replicas, previous: ModelStatus | None) -> ModelStatus | None:
    """None for a model that is not downloaded. What pods do not tell any more stays as it was."""
    if deployment is None:
        return previous
    if not is_on_hub(deployment.spec.model.uri):
        return None
    revision = deployment.spec.model.revision
    known, furthest = previous or ModelStatus(), _furthest(observed, replicas)
    pinned = revision if revision is not None and COMMIT.fullmatch(revision) else None
    return ModelStatus(
        resolved_revision=(furthest.revision if furthest is not None else None) or pinned or known.resolved_revision,
        size_bytes=(furthest.size_bytes if furthest is not None else None) or known.size_bytes,
        download=_download(observed, replicas, furthest, known.download),
    )


def _download(observed: Observed, replicas: Replicas, furthest: Startup | None, known: DownloadStatus | None) -> DownloadStatus | None:
    told = furthest.bytes if furthest is not None else None
    num_bytes = told if told is not None else known.bytes if known is not None else 0
    if any(_has_files(observed, pod) for pod in replicas.updated):
        return DownloadStatus(phase="Downloaded", bytes=num_bytes) if told is not None or known is not None else None
    if furthest is not None and furthest.phase == DOWNLOADING:
        return DownloadStatus(phase="Downloading", bytes=num_bytes, bytes_per_second=furthest.bytes_per_second, eta_seconds=furthest.eta_seconds)
    if any(end.reason in DOWNLOAD_FAILURES for pod in replicas.updated for end in failures_of(pod)):
        return DownloadStatus(phase="Failed", bytes=num_bytes)
    return known


def _has_files(observed: Observed, pod: Pod) -> bool:
    startup = _startup(observed, pod)
    return pod.is_ready or (startup is not None and startup.phase not in BEFORE_DOWNLOAD)


def _startup(observed: Observed, pod: Pod) -> Startup | None:
    report = observed.reports.get(pod.name)
    return None if report is None else report.startup


def _furthest(observed: Observed, replicas: Replicas) -> Startup | None:
    """Of those that tell of a download, also of one that is over."""
    told = [startup for pod in replicas.updated if (startup := _startup(observed, pod)) is not None and startup.bytes is not None]
    return max(told, key=lambda startup: (startup.phase == DOWNLOADING, startup.bytes or 0), default=None)


def _share(startup: Startup) -> str:
    """In tenths: each new message is a write."""
    if startup.bytes is None or not startup.size_bytes:
        return "The download has begun"
    return f"{startup.bytes * 10 // startup.size_bytes * 10} % are there"
