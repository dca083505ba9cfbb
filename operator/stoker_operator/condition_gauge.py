"""How many InferenceDeployments each condition holds for, as their last looks found."""

from stoker_operator.operator_metrics import INFERENCE_DEPLOYMENTS
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.store import Key


class ConditionGauge:
    def __init__(self) -> None:
        self._held: dict[Key, frozenset[str]] = {}

    def tell(self, key: Key, status: InferenceDeploymentStatus) -> None:
        self._count(key, frozenset(condition.type for condition in status.conditions if condition.status == "True"))

    def forget(self, key: Key) -> None:
        """An InferenceDeployment that is gone."""
        self._count(key, frozenset())
        self._held.pop(key, None)

    def _count(self, key: Key, holds: frozenset[str]) -> None:
        held = self._held.get(key, frozenset())
        for condition in held - holds:
            INFERENCE_DEPLOYMENTS.labels(condition=condition).dec()
        for condition in holds - held:
            INFERENCE_DEPLOYMENTS.labels(condition=condition).inc()
        self._held[key] = holds
