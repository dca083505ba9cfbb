"""The Grafana dashboard, from one line per panel."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
MODEL = 'model_name=~"$model"'
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` are expressions with their legends. `unit` is Grafana's word."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    description: str = ""


def rate(metric: str, *, by: str = "", more: str = "") -> str:
    """Per second, summed over replicas."""
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (rate({metric}{{{MODEL}{more}}}[$__rate_interval]))"


def quantiles(histogram: str) -> list[tuple[str, str]]:
    series = rate(f"{histogram}_bucket", by="le")
    return [(f"histogram_quantile({share}, {series})", f"p{share * 100:.0f}") for share in QUANTILES]


def mean(histogram: str) -> str:
    return f"{rate(f'{histogram}_sum')} / {rate(f'{histogram}_count')}"


def of_models(metric: str) -> str:
    """What a process tells without naming its model, for the apis of these models alone."""
    return f"{metric} * on (instance) group_left (model_name) max by (instance, model_name) (stoker_num_requests_running{{{MODEL}}} * 0 + 1)"


PANELS = (
    Panel("HTTP requests", "reqps", [(rate("stoker_http_requests_total", by="path, status"), "{{path}} {{status}}")]),
    Panel(
        "Requests in the engine",
        "short",
        [
            (f"sum (stoker_num_requests_running{{{MODEL}}})", "running"),
            (f"sum by (reason) (stoker_num_requests_waiting_by_reason{{{MODEL}}})", "waiting: {{reason}}"),
        ],
    ),
    Panel("Finished requests", "reqps", [(rate("stoker_request_success_total", by="finish_reason"), "{{finish_reason}}")]),
    Panel("Time to first token", "s", quantiles("stoker_time_to_first_token_seconds")),
    Panel("Time between tokens", "s", quantiles("stoker_inter_token_latency_seconds")),
    Panel("Time of a whole request", "s", quantiles("stoker_e2e_request_latency_seconds")),
    Panel(
        "Tokens",
        "short",
        [(rate(f"stoker_{name}_total"), legend) for name, legend in (("prompt_tokens", "prompt"), ("generation_tokens", "generated"))]
        + [(rate("stoker_prompt_tokens_cached_total"), "prompt, from the prefix cache")],
        "Per second.",
    ),
    Panel(
        "Where the time goes",
        "s",
        [(mean(f"stoker_request_{phase}_time_seconds"), phase) for phase in ("queue", "prefill", "decode")],
        "Mean of the requests that have ended.",
    ),
    Panel("Tokens in a step", "short", [(mean("stoker_iteration_tokens"), "mean")]),
    Panel("KV cache in use", "percentunit", [(f"max by (model_name) (stoker_kv_cache_usage_ratio{{{MODEL}}})", "{{model_name}}")], "The fullest replica's."),
    Panel(
        "Prefix cache hits",
        "percentunit",
        [(f"{rate('stoker_prefix_cache_hits_total')} / {rate('stoker_prefix_cache_queries_total')}", "share of prompt tokens")],
    ),
    Panel(
        "Preempted and corrupted requests",
        "reqps",
        [(rate("stoker_num_preemptions_total"), "preempted"), (rate("stoker_corrupted_requests_total"), "corrupted")],
    ),
    Panel("Length of prompts", "short", quantiles("stoker_request_prompt_tokens"), "Tokens."),
    Panel("Length of answers", "short", quantiles("stoker_request_generation_tokens"), "Tokens."),
    Panel("Refused requests", "reqps", [(rate("stoker_requests_refused_total", by="reason"), "{{reason}}")]),
    Panel("Engines by state", "short", [(f"sum by (state) (stoker_engine_state{{{MODEL}}})", "{{state}}")]),
    Panel(
        "The engines' loops",
        "s",
        [("max (stoker_engine_loop_age_seconds)", "since the loop turned"), ("max (stoker_engine_step_age_seconds)", "of the present step")],
        "Of all models: the oldest.",
    ),
    Panel(
        "The apis",
        "short",
        [(f"sum ({of_models('rate(process_cpu_seconds_total[$__rate_interval])')})", "CPUs"), (f"max ({of_models('process_open_fds')})", "open files")],
        "CPUs of all of them, open files of the one that has most.",
    ),
)


def dashboard() -> str:
    body: dict[str, Any] = {
        "title": "Stoker",
        "uid": "stoker",
        "tags": ["stoker"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [datasource_variable(), model_variable()]},
        "panels": [panel(index, one) for index, one in enumerate(PANELS)],
    }
    return json.dumps(body, indent=1) + "\n"


def datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def model_variable() -> dict[str, Any]:
    query = {"query": "label_values(stoker_num_requests_running, model_name)", "refId": "model"}
    return {"name": "model", "label": "Model", "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2, "includeAll": True, "multi": True}


def panel(index: int, one: Panel) -> dict[str, Any]:
    row, column = divmod(index, COLUMNS)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": one.title,
        "description": one.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(one.queries)
        ],
    }
