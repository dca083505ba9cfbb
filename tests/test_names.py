import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import yaml

from stoker_engine.frontend.engine_status import EngineStatus
from stoker_engine.version import __version__
from stoker_gateway.api.metrics import Metrics
from stoker_gateway.router.cluster import names as gateway_names
from stoker_operator import names
from stoker_operator.crd import crd_yaml
from stoker_operator.v1alpha1 import InferenceDeployment

ROOT = Path(__file__).parents[1]
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))


def test_the_generated_resource_definition_is_up_to_date() -> None:
    assert (ROOT / "manifests" / "crd.yaml").read_text(encoding="utf-8") == crd_yaml()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_decodes(path: Path) -> None:
    deployment = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), InferenceDeployment)
    assert deployment.metadata.name


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


@pytest.mark.parametrize(("component", "module"), [(names.API, names.API_MODULE), (names.ENGINE, names.ENGINE_MODULE), (names.GATEWAY, names.GATEWAY_MODULE)])
def test_a_component_has_one_name_in_its_program_and_module(component: str, module: str) -> None:
    (script,) = entry_points(group="console_scripts", name=f"stoker-{component}")
    assert script.value == f"{module}.__main__:main"
    assert find_spec(module) is not None


def test_every_metric_of_ours_has_our_prefix() -> None:
    page = Metrics("model").render(EngineStatus()).decode()
    metric_names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert metric_names
    assert [name for name in metric_names if not name.startswith(("stoker_", "process_"))] == []


def test_the_gateway_and_the_operator_mean_the_same_objects() -> None:
    kind = gateway_names.INFERENCE_DEPLOYMENTS
    assert (kind.group, kind.version, kind.plural) == (names.GROUP, names.VERSION, names.PLURAL)
    assert (gateway_names.API_VERSION, gateway_names.KIND) == (names.API_VERSION, names.KIND)
    assert (gateway_names.INFERENCE_DEPLOYMENT_LABEL, gateway_names.HTTP_PORT_NAME) == (names.INFERENCE_DEPLOYMENT_LABEL, names.HTTP_PORT_NAME)
    assert gateway_names.FIELD_MANAGER != names.FIELD_MANAGER
