from prometheus_client import REGISTRY

from stoker_operator.condition_gauge import ConditionGauge
from stoker_operator.status_types import Condition, InferenceDeploymentStatus


def _status(*true: str) -> InferenceDeploymentStatus:
    times = {"reason": "Why", "message": "", "last_transition_time": "2026-01-01T00:00:00Z"}
    return InferenceDeploymentStatus(
        conditions=tuple(Condition(type=each, status="True" if each in true else "False", **times) for each in ("Available", "Ready"))
    )


def _count(condition: str) -> float:
    return REGISTRY.get_sample_value("stoker_inference_deployments", {"condition": condition}) or 0.0


def _counts() -> tuple[float, float]:
    return _count("Available"), _count("Ready")


def test_each_inference_deployment_counts_once_for_each_condition_that_holds_until_it_is_gone():
    gauge = ConditionGauge()
    for _ in range(2):
        gauge.tell(("ns", "a"), _status("Available", "Ready"))
    gauge.tell(("ns", "b"), _status("Available"))
    assert _counts() == (2, 1)
    gauge.tell(("ns", "a"), _status("Available"))
    assert _counts() == (2, 0)
    gauge.forget(("ns", "a"))
    gauge.forget(("ns", "c"))
    assert _counts() == (1, 0)
    gauge.forget(("ns", "b"))
    assert _counts() == (0, 0)
