import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from stoker_engine.settings import flags_of
from stoker_gateway.router.cluster.names import ENDPOINT_SLICES, INFERENCE_DEPLOYMENTS
from stoker_gateway.router.config import GatewayConfig
from stoker_operator.config import OperatorConfig
from stoker_operator.crd import custom_resource_definition

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "stoker"
INSTALL = ROOT / "manifests" / "install.yaml"


def test_what_the_chart_takes_from_the_code_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "charts" / "generate.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_chart_has_the_version_of_the_distribution() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_values_stay_short() -> None:
    assert len((CHART / "values.yaml").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_operator_knows_every_flag_that_the_chart_passes() -> None:
    template = (CHART / "templates" / "operator" / "deployment.yaml").read_text(encoding="utf-8")
    known = {"namespace", *(name.replace("_", "-") for name in OperatorConfig.__struct_fields__)}
    assert set(re.findall(r"- --([a-z-]+)=", template)) <= known


def test_the_gateway_knows_every_flag_that_the_chart_passes() -> None:
    template = (CHART / "templates" / "gateway" / "deployment.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"- (--[a-z-]+)=", template)) <= flags_of(GatewayConfig)


def test_the_gateway_may_do_what_it_asks_of_the_api_server_and_no_more() -> None:
    (role,) = [one for one in documents() if one["kind"] == "ClusterRole" and one["metadata"]["name"].endswith("-gateway")]
    granted = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]
    deployments, slices = INFERENCE_DEPLOYMENTS, ENDPOINT_SLICES
    assert granted == [
        ([deployments.group], [deployments.plural], ["list", "watch"]),
        ([deployments.group], [f"{deployments.plural}/status"], ["patch"]),
        ([slices.group], [slices.plural], ["list", "watch"]),
    ]


def test_there_are_two_gateways_and_no_upgrade_or_node_drain_takes_both() -> None:
    found = {one["kind"]: one["spec"] for one in documents() if one["metadata"]["name"] == "stoker-gateway" and "spec" in one}
    deployment = found["Deployment"]
    assert deployment["replicas"] == 2 and deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert found["PodDisruptionBudget"]["maxUnavailable"] == 1
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (found["Service"]["selector"], found["PodDisruptionBudget"]["selector"]["matchLabels"], deployment["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    pod = deployment["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert {"--drain-delay=5s", "--drain-timeout=120s"} <= set(arguments) and pod["terminationGracePeriodSeconds"] == 140


def documents() -> list[dict[str, Any]]:
    """What `helm install` makes, by default."""
    return [one for one in yaml.safe_load_all(INSTALL.read_text(encoding="utf-8")) if one]


def test_the_rendered_manifests_define_the_same_resource() -> None:
    (definition,) = [one for one in documents() if one["kind"] == "CustomResourceDefinition"]
    assert definition["spec"] == custom_resource_definition()["spec"]
