"""What the operator measures of itself."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILE_DURATION = Histogram(
    "stoker_operator_reconcile_duration_seconds",
    "Time that one reconciliation took.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
RECONCILES = Counter("stoker_operator_reconcile_total", "Reconciliations: Succeeded, or why they failed and are tried again.", ["result"])
QUEUE_DEPTH = Gauge("stoker_operator_queue_depth", "InferenceDeployments that wait for a worker.")
QUEUE_AGE = Gauge("stoker_operator_queue_age_seconds", "How long the InferenceDeployment that waits longest has waited.")
API_WRITES = Counter("stoker_operator_api_writes_total", "Writes sent to the API server, Leases included.", ["kind", "verb"])
MANAGED = Gauge("stoker_operator_managed_inference_deployments", "InferenceDeployments that this operator looks after.")
INFERENCE_DEPLOYMENTS = Gauge("stoker_inference_deployments", "InferenceDeployments that a condition is True of.", ["condition"])
LEADER = Gauge("stoker_operator_leader", "1 while this process holds the Lease.")
