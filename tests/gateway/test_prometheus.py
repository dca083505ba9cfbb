"""A real Prometheus scrapes a replica: Debian's package, unpacked into the cache where it is not installed."""

import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from stoker_engine.testing import Script

pytestmark = pytest.mark.stress

CHART = Path(__file__).parents[2] / "charts" / "stoker"
RULES = CHART / "rules" / "alerts.yaml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stoker" / "prometheus"


def unpacked() -> Path:
    """The directory of both programs."""
    programs = CACHE / "usr" / "bin"
    if not (programs / "promtool").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "prometheus"], cwd=CACHE, check=True, capture_output=True)
        (package,) = CACHE.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, CACHE], check=True)
        package.unlink()
    return programs


@pytest.fixture(scope="module")
def programs() -> Path:
    installed = shutil.which("promtool")
    return unpacked() if installed is None else Path(installed).parent


class Prometheus:
    """One that has found what it scrapes."""

    def __init__(self, port: int) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def is_ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def values(self, expression: str) -> list[float]:
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        return [float(sample["value"][1]) for sample in answer["data"]["result"]]

    def rules(self) -> dict[str, dict[str, Any]]:
        groups = self.client.get("/api/v1/rules").json()["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}


@pytest.fixture
def scraped(start_api: Callable[..., Any], free_port: Callable[[], int], programs: Path, tmp_path: Path, wait_for: Callable[..., None]) -> Iterator[Any]:
    health_port, port = free_port(), free_port()
    api = start_api(Script(step_seconds=0.005, max_model_len=1024), engine={"health_port": health_port, "health_host": "127.0.0.1"}, max_queued_requests=4)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "stoker", "static_configs": [{"targets": [f"127.0.0.1:{api.port}", f"127.0.0.1:{health_port}"]}]}],
    }
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    flags = [f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen([programs / "prometheus", *flags], stderr=subprocess.DEVNULL)
    prometheus = Prometheus(port)
    try:
        wait_for(prometheus.is_ready, "Prometheus is ready")
        yield api, prometheus
    finally:
        prometheus.client.close()
        process.kill()
        process.wait()


def dashboard_queries() -> list[str]:
    panels = json.loads((CHART / "dashboards" / "stoker.json").read_text(encoding="utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    return [expression.replace("$model", ".*").replace("$__rate_interval", "10s") for expression in expressions]


def make_traffic(api: Any) -> None:
    api.chat("the same long prompt " * 20, max_tokens=8)
    api.stream_completion("a", max_tokens=8)
    api.post("/v1/completions", {"prompt": "x", "temperature": 9})


def test_each_query_of_the_dashboard_has_data(scraped: Any) -> None:
    api, prometheus = scraped
    missing = dashboard_queries()
    assert len(missing) > 25
    deadline = time.monotonic() + 90
    while missing and time.monotonic() < deadline:
        make_traffic(api)
        missing = [query for query in missing if not any(math.isfinite(value) for value in prometheus.values(query))]
    assert missing == []


def test_the_alerts_are_valid_and_one_sees_a_killed_engine(scraped: Any, programs: Path, wait_for: Callable[..., None]) -> None:
    subprocess.run([programs / "promtool", "check", "rules", RULES], check=True, capture_output=True)
    api, prometheus = scraped
    make_traffic(api)
    wait_for(lambda: {rule["health"] for rule in prometheus.rules().values()} == {"ok"}, "all rules have been evaluated")
    assert {name for name, rule in prometheus.rules().items() if rule["state"] != "inactive"} == {"StokerOperatorWithoutLeader"}  # none is scraped
    api.engine.abandon()
    wait_for(lambda: prometheus.rules()["StokerEngineFailed"]["state"] == "pending", "the alert is pending")


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ({}, [{}]),
        ({'stoker_operator_leader{namespace="a",pod="0"}': "0x10", 'stoker_operator_leader{namespace="a",pod="1"}': "0x10"}, [{"namespace": "a"}]),
        ({'stoker_operator_leader{namespace="a",pod="0"}': "0x10", 'stoker_operator_leader{namespace="a",pod="1"}': "1x10"}, []),
        ({'stoker_operator_leader{namespace="a",pod="0"}': "1 1 stale"}, [{}]),
    ],
)
def test_an_operator_that_does_not_lead_or_run_is_seen(programs: Path, tmp_path: Path, series: dict[str, str], labels: list[dict[str, str]]) -> None:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    query = {"expr": 'ALERTS{alertname="StokerOperatorWithoutLeader",alertstate="firing"}', "eval_time": "9m"}
    known = {"__name__": "ALERTS", "alertname": "StokerOperatorWithoutLeader", "alertstate": "firing", "severity": "critical"}
    samples = [{"labels": _selector({**known, **own}), "value": 1} for own in labels]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [{**query, "exp_samples": samples}]}
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
    checked = subprocess.run([programs / "promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _selector(labels: dict[str, str]) -> str:
    return labels.pop("__name__") + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_the_page_has_the_form_that_prometheus_wants(scraped: Any, programs: Path) -> None:
    api, _ = scraped
    make_traffic(api)
    checked = subprocess.run([programs / "promtool", "check", "metrics"], input=api.client.get("/metrics").text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
