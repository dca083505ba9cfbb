import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

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


def test_the_rendered_manifests_define_the_same_resource() -> None:
    documents = [one for one in yaml.safe_load_all(INSTALL.read_text(encoding="utf-8")) if one]
    (definition,) = [one for one in documents if one["kind"] == "CustomResourceDefinition"]
    assert definition["spec"] == custom_resource_definition()["spec"]
