"""The first steps of a user, as the README has them: install, apply, wait, ask."""

import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
import yaml

from cluster.cluster import Cluster, pod_security
from deployed import KIND, START_SECONDS, Deployed, remove
from installation import CHART, GATEWAY, TAG, Installation

Report = Callable[[str], None]

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "manifests" / "samples" / "smollm2.yaml"
INSTALL = ROOT / "manifests" / "install.yaml"
NAME = "smollm2"
QUESTION = "What is the capital of France?"
COLUMNS = ["NAME", "READY", "DESIRED", "UP-TO-DATE", "AVAILABLE", "STATUS", "MODEL", "AGE"]
READ_URL = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + '/v1/models', timeout=10).read().decode())"


@contextmanager
def applied_sample(cluster: Cluster, namespace: str) -> Iterator[tuple[Deployed, float]]:
    """The sample as it is, and the seconds from apply to Ready."""
    began = time.monotonic()
    cluster.kubectl("apply", f"--namespace={namespace}", f"--filename={SAMPLE}")
    try:
        cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", f"infdep/{NAME}", f"--timeout={START_SECONDS:.0f}s")
        yield Deployed(cluster, NAME, namespace), time.monotonic() - began
    finally:
        remove(cluster, Deployed(cluster, NAME, namespace))


def ask(url: str) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=16)
    return answer.choices[0].message.content or ""


def check_sample(cluster: Cluster, release: Installation) -> float:
    """Applies it, asks it through the gateway and by its own Service, and looks at it as a user does. Returns the seconds from apply to Ready."""
    namespace = release.models
    with applied_sample(cluster, namespace) as (model, seconds):
        release.wait_ready()
        for url in (release.gateway_url, model.url):
            assert "Paris" in ask(url)
        header, row = cluster.kubectl("get", "infdep", f"--namespace={namespace}").splitlines()
        assert re.split(r"\s{2,}", header.strip()) == COLUMNS
        assert row.split()[:6] == [NAME, "1", "1", "1", "1", "AllReplicasReady"]
        for url in (f"http://{GATEWAY}.{release.namespace}.svc", model.status["url"]):
            found = cluster.kubectl("exec", f"--namespace={namespace}", model.pod_names[0], "--container=api", "--", "python3", "-c", READ_URL, url)
            assert f'"id":"{NAME}"' in found
    return seconds


def test_a_sample_is_ready_and_answers_after_helm_install(cluster: Cluster, report: Report):
    with cluster.namespace("stoker-system", pod_security("restricted")) as system, cluster.namespace("apply", pod_security("restricted")) as namespace:
        release = Installation(cluster, system, namespace)
        notes = cluster.helm("install", "stoker", CHART, f"--namespace={system}", "--take-ownership", f"--set=image.tag={TAG}")
        try:
            assert "kubectl" in notes
            report(f"after helm install: {check_sample(cluster, release):.1f} s from apply to Ready")
        finally:
            release.uninstall()
        assert cluster.find("CustomResourceDefinition", "inferencedeployments.stoker.dev")


def test_a_sample_is_ready_and_answers_after_kubectl_apply_of_the_rendered_manifests(cluster: Cluster, report: Report, tmp_path: Path):
    manifests = tmp_path / "install.yaml"
    manifests.write_text(re.sub(r"(localhost/stoker-\w+):[\w.]+", rf"\1:{TAG}", INSTALL.read_text()))
    documents = [document for document in yaml.safe_load_all(manifests.read_text()) if document]
    with cluster.namespace("apply", pod_security("restricted")) as namespace:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={manifests}")
        try:
            release = Installation(cluster, _namespace_of(documents), namespace)
            release.wait_ready()
            report(f"after kubectl apply of install.yaml: {check_sample(cluster, release):.1f} s from apply to Ready")
        finally:
            for document in documents:
                if document["kind"] != "CustomResourceDefinition":
                    cluster.delete(document["kind"], document["metadata"]["name"], document["metadata"].get("namespace"))


def _namespace_of(documents: list[dict[str, dict[str, str]]]) -> str:
    return next(document["metadata"]["name"] for document in documents if document["kind"] == "Namespace")


def test_a_field_is_explained(cluster: Cluster, stoker: Installation):
    text = cluster.kubectl("explain", "infdep.spec.lifecycle")
    for words in ("The deadlines of a replica's life", "drainTimeout", "How long requests in flight may go on", "preStopDelay"):
        assert words in " ".join(text.split())
    assert KIND in text


@pytest.mark.stress
def test_a_sample_is_ready_in_half_a_minute(cluster: Cluster, stoker: Installation, report: Report):
    seconds = []
    for _ in range(3):
        with applied_sample(cluster, stoker.models) as (_model, took):
            seconds.append(took)
    report(f"apply to Ready: {', '.join(f'{each:.1f}' for each in seconds)} s, median {statistics.median(seconds):.1f} s")
    assert statistics.median(seconds) <= 30
