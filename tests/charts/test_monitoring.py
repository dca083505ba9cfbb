"""The dashboard and the alerts know no names but those that our programs tell."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

import stoker_operator.operator_metrics  # noqa: F401  its metrics are in the registry from then on
from stoker_engine.core import engine_metrics
from stoker_engine.frontend.engine_status import EngineStatus
from stoker_gateway.api.metrics import Metrics

CHART = Path(__file__).parents[2] / "charts" / "stoker"
DASHBOARD = json.loads((CHART / "dashboards" / "stoker.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def told_names() -> set[str]:
    """By the api, by the engine and by the operator."""
    families = [*text_string_to_metric_families(Metrics("m").render(EngineStatus()).decode()), *REGISTRY.collect()]
    told = {family.name + suffix for family in families for suffix in SUFFIXES.get(family.type, ("",))}
    own = {metric.name + SUFFIXES[metric.kind.value][0] for metric in engine_metrics.METRICS}
    return told | {engine_metrics.PREFIX + name for name in {*own, engine_metrics.PHASE}}


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:stoker|process|vllm|http)_\w+", expression))


@pytest.mark.parametrize("expression", [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]])
def test_a_panel_asks_for_names_that_exist(expression: str) -> None:
    names = names_in(expression)
    assert names and names <= told_names()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_names_that_exist(rule: dict[str, str]) -> None:
    names = names_in(rule["expr"])
    assert names and names <= told_names()


def test_the_dashboard_chooses_models_by_a_metric_that_exists() -> None:
    (query,) = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["name"] == "model"]
    assert names_in(query) <= told_names() and "model_name" in query


def test_panels_and_alerts_have_names_of_their_own() -> None:
    for names in ([panel["title"] for panel in DASHBOARD["panels"]], [rule["alert"] for rule in RULES]):
        assert len(set(names)) == len(names)
