"""What helm makes of values: objects that an API server takes, or a word about the value that is at fault."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

CHART = Path(__file__).parents[2] / "charts" / "stoker"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stoker" / "bin"
HELM = shutil.which("helm") or next(map(str, CACHE.glob("helm-*/helm")), None)

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm")


def render(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, "template", name, str(CHART), *options], capture_output=True, text=True, check=False)


def test_names_that_look_like_numbers_and_truths_stay_names() -> None:
    values = ("--set-string=gateway.apiKeysSecret=1", '--set-json=gateway.routeNamespaces=["true"]', '--set-json=operator.namespaces=["2"]')
    documents = [one for one in yaml.safe_load_all(render("123", "--namespace=456", *values).stdout) if one]
    assert len(documents) > 10
    for metadata in (one["metadata"] for one in documents):
        assert all(isinstance(value, str) for value in (metadata["name"], metadata.get("namespace", ""), *(metadata.get("labels") or {}).values()))
    (grant,) = [one for one in documents if one["kind"] == "ReferenceGrant"]
    assert grant["spec"]["from"][0]["namespace"] == "true"
    (gateway,) = [one for one in documents if one["kind"] == "Deployment" and one["metadata"]["name"] == "123-stoker-gateway"]
    assert gateway["spec"]["template"]["spec"]["volumes"][1]["secret"] == {"secretName": "1"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gateway.autoscaling.maxReplicas=1", "maxReplicas: 1 is less than gateway.replicas: 2"),
        ("gateway.autoscaling.maxReplicas=3,gateway.replicas=0", "gateway.replicas: 0"),
        ("gateway.maxBodyBytes=1073741824", "gateway.maxBodyMemoryBytes: 268435456"),
        ("gateway.maxBodyBytes=3,gateway.logLevel=loud,operator.logFormat=xml,gateway.autoscaling.cpuUtilization=0", "/gateway/logLevel"),
    ],
)
def test_values_that_would_make_invalid_objects_are_named(value: str, words: str) -> None:
    done = render("stoker", f"--set={value}")
    assert done.returncode != 0 and words in done.stderr
