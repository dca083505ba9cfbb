"""The model's files: how far their download is, and the condition ModelCached. Only of a model that is downloaded."""

import re

from stoker_operator.observed import Observed
from stoker_operator.pod_reports import Startup
from stoker_operator.status.conditions import Finding
from stoker_operator.status.ends import failures_of
from stoker_operator.status.objects import Pod
from stoker_operator.status.replicas import Replicas
from stoker_operator.status.text import one_line
from stoker_operator.status_types import DownloadStatus, ModelStatus
from stoker_operator.v1alpha1 import InferenceDeployment

DOWNLOADED_SCHEME = "hf://"
DOWNLOADING = "downloading"
"""The phase in which an engine, or an api, waits for the model's files."""

BEFORE_DOWNLOAD = frozenset({"", "starting", "waiting_for_engine", "failed", DOWNLOADING})
DOWNLOAD_FAILURES = {
    "AuthRequired": "AuthRequired",
    "DiskFull": "DiskFull",
    "DownloadFailed": "DownloadFailed",
    "ModelNotFound": "DownloadFailed",
    "RateLimited": "RateLimited",
}
"""The programs' reasons, and the condition's."""
COMMIT = re.compile(r"[0-9a-f]{40}")


def find_model_cached(deployment: InferenceDeployment | None, observed: Observed, replicas: Replicas) -> Finding | None:
    """None for a model that is not downloaded."""
    if deployment is None or not deployment.spec.model.uri.startswith(DOWNLOADED_SCHEME):
        return None
    if any(_has_files(observed, pod) for pod in replicas.updated):
        return Finding("ModelCached", "True", "Cached", "The model's files are there.")
    failed = next((end for pod in replicas.updated for end in failures_of(pod) if end.reason in DOWNLOAD_FAILURES), None)
    if failed is not None:
        return Finding("ModelCached", "False", DOWNLOAD_FAILURES[failed.reason], one_line(f"Pod {failed.pod}: {failed.message}"))
    furthest = _furthest(observed, replicas)
    if furthest is not None:
        words = f": {furthest.message}" if furthest.message else ""
        return Finding("ModelCached", "False", "Downloading", one_line(f"{_share(furthest)}{words}."))
    return Finding("ModelCached", "Unknown", "Downloading", "No pod has told yet whether the model's files are there.")


def find_model(deployment: InferenceDeployment | None, observed: Observed, replicas: Replicas, previous: ModelStatus | None) -> ModelStatus | None:
    """None for a model that is not downloaded. What pods do not tell any more stays as it was."""
    if deployment is None:
        return previous
    if not deployment.spec.model.uri.startswith(DOWNLOADED_SCHEME):
        return None
    revision = deployment.spec.model.revision
    known = previous or ModelStatus()
    furthest = _furthest(observed, replicas)
    total = furthest.total_bytes if furthest is not None else None
    return ModelStatus(
        resolved_revision=revision if revision is not None and COMMIT.fullmatch(revision) else known.resolved_revision,
        size_bytes=total if total else known.size_bytes,
        download=_download(observed, replicas, furthest, known.download),
    )


def _download(observed: Observed, replicas: Replicas, furthest: Startup | None, known: DownloadStatus | None) -> DownloadStatus | None:
    if any(_has_files(observed, pod) for pod in replicas.updated):
        return None if known is None else DownloadStatus(phase="Downloaded", bytes=known.bytes)
    if furthest is not None:
        rate = furthest.bytes_per_second or 0.0
        left = (furthest.total_bytes or 0) - furthest.bytes
        eta = int(left / rate) if rate > 0 and furthest.total_bytes and left >= 0 else None
        return DownloadStatus(phase="Downloading", bytes=max(furthest.bytes, 0), bytes_per_second=int(rate) if rate > 0 else None, eta_seconds=eta)
    if any(end.reason in DOWNLOAD_FAILURES for pod in replicas.updated for end in failures_of(pod)):
        return DownloadStatus(phase="Failed", bytes=0 if known is None else known.bytes)
    return known


def _has_files(observed: Observed, pod: Pod) -> bool:
    report = observed.reports.get(pod.name)
    startup = None if report is None else report.startup
    return pod.is_ready or (startup is not None and startup.phase not in BEFORE_DOWNLOAD)


def _furthest(observed: Observed, replicas: Replicas) -> Startup | None:
    reports = (observed.reports.get(pod.name) for pod in replicas.updated)
    downloading = [each.startup for each in reports if each is not None and each.startup is not None and each.startup.phase == DOWNLOADING]
    return max(downloading, key=lambda startup: startup.bytes, default=None)


def _share(startup: Startup) -> str:
    return f"{startup.bytes * 10 // startup.total_bytes * 10} % are there" if startup.total_bytes else "The download has begun"
