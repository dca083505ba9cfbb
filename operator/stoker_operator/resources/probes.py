"""The probes of a pod. Both containers answer them themselves; a native sidecar's startup probe would hold back the api, so the engine has none."""

import math

from stoker_engine.config import LifecycleConfig, seconds
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HEALTH_PORT_NAME, HTTP_PORT_NAME, LIVENESS_PATH, READINESS_PATH, STARTUP_PATH

STARTUP_MARGIN_SECONDS = 60
"""The engine ends a start that takes too long, and says in which phase; the api's probe only catches what that leaves."""

KILL_GRACE_SECONDS = 10
"""For a container that its probe found dead: it will not drain, so the pod's grace period would be waited out for nothing."""

LIVENESS_PERIOD_SECONDS = 5
LIVENESS_FAILURES = 6
"""Half a minute: a busy node may stop a process for seconds, and the engine's own watchdog is quicker where it is hung."""

TIMEOUT_SECONDS = 5
READINESS_TIMEOUT_SECONDS = 2
READINESS_FAILURES = 2
"""With a period of a second: no new requests 4 s after an answer stays out, and 2 s after a 503."""


def engine_probes() -> KubeObject:
    return {"livenessProbe": _liveness(HEALTH_PORT_NAME), "readinessProbe": _readiness(HEALTH_PORT_NAME)}


def api_probes(lifecycle: LifecycleConfig) -> KubeObject:
    budget = math.ceil(seconds(lifecycle.startup_timeout)) + STARTUP_MARGIN_SECONDS
    startup = {
        **_probe(STARTUP_PATH, HTTP_PORT_NAME),
        "periodSeconds": 1,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": budget,
        "terminationGracePeriodSeconds": KILL_GRACE_SECONDS,
    }
    return {"startupProbe": startup, "livenessProbe": _liveness(HTTP_PORT_NAME), "readinessProbe": _readiness(HTTP_PORT_NAME)}


def _liveness(port: str) -> KubeObject:
    return {
        **_probe(LIVENESS_PATH, port),
        "periodSeconds": LIVENESS_PERIOD_SECONDS,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": LIVENESS_FAILURES,
        "terminationGracePeriodSeconds": KILL_GRACE_SECONDS,
    }


def _readiness(port: str) -> KubeObject:
    return {**_probe(READINESS_PATH, port), "periodSeconds": 1, "timeoutSeconds": READINESS_TIMEOUT_SECONDS, "failureThreshold": READINESS_FAILURES}


def _probe(path: str, port: str) -> KubeObject:
    return {"httpGet": {"path": path, "port": port}}
