"""gateway/README.md says what the code does."""

import re
from pathlib import Path

import msgspec
import pytest

from stoker_gateway.api.app import ROUTES
from stoker_gateway.api.metric_table import METRICS, MetricKind
from stoker_gateway.openai.fields import CHAT_RULES, COMPLETION_RULES, FieldRules
from stoker_gateway.openai.request import ChatCompletionRequest, CompletionRequest
from stoker_gateway.openai.responses.request import RESPONSES_RULES, ResponsesRequest

README = (Path(__file__).parents[2] / "gateway" / "README.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line.startswith("| ")]


def outcome(name: str, request: type[msgspec.Struct], rules: FieldRules) -> str:
    if name in request.__struct_fields__:
        return "honored"
    if name in rules.ignored:
        return "ignored"
    if name not in rules.refused:
        return "–"
    harmless = " ".join(f"`{msgspec.json.encode(value).decode()}`" for value in rules.refused[name])
    return f"refused ({harmless})" if harmless else "refused"


def test_the_table_of_request_fields_is_that_of_the_code() -> None:
    documented = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 3 and re.match("honored|ignored|refused|–", row[1])}
    names = {*ChatCompletionRequest.__struct_fields__, *CompletionRequest.__struct_fields__}
    for rules in (CHAT_RULES, COMPLETION_RULES):
        names |= {*rules.ignored, *rules.refused}
    assert documented == {name: [outcome(name, ChatCompletionRequest, CHAT_RULES), outcome(name, CompletionRequest, COMPLETION_RULES)] for name in names}


def test_the_table_of_a_responses_fields_is_that_of_the_code() -> None:
    documented = {row[0].strip("`"): row[1] for row in ROWS if len(row) == 2 and re.match("honored|ignored|refused", row[1])}
    names = {*ResponsesRequest.__struct_fields__, *RESPONSES_RULES.ignored, *RESPONSES_RULES.refused}
    assert documented == {name: outcome(name, ResponsesRequest, RESPONSES_RULES) for name in names}


@pytest.mark.parametrize(("method", "path"), [(method, path.replace(":path", "")) for method, path, _ in ROUTES])
def test_an_endpoint_has_a_line(method: str, path: str) -> None:
    assert f"| `{method} {path}` |" in README


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_a_metric_has_a_line_under_both_names(spec: object) -> None:
    name, vllm_name, kind, text = (getattr(spec, field) for field in ("name", "vllm_name", "kind", "help"))
    row = next(row for row in ROWS if row[0].startswith(f"`{name}`"))
    assert row[1:] == [f"`{vllm_name}`", kind.value, text.rstrip(".")]


def test_a_metric_with_a_unit_ends_in_it() -> None:
    timed = [spec.name for spec in METRICS if spec.kind is MetricKind.HISTOGRAM and ("time" in spec.name or "latency" in spec.name)]
    assert timed and all(name.endswith("_seconds") for name in timed)
    assert [spec.name for spec in METRICS if "usage" in spec.name] == ["kv_cache_usage_ratio"]
