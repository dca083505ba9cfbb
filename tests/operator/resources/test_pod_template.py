from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_engine.config import EngineConfig, seconds
from stoker_engine.settings import from_args
from stoker_gateway.api.config import ApiConfig
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import SOCKETS_PATH
from stoker_operator.resources.context import Defaults
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.v1alpha1 import InferenceDeployment

RenderPod = Callable[..., KubeObject]
MakeDeployment = Callable[..., InferenceDeployment]

DURATIONS = st.builds(lambda number, unit: f"{number}{unit}", st.integers(0, 900), st.sampled_from(["ms", "s", "m"]))


def engine_of(pod: KubeObject) -> KubeObject:
    engine: KubeObject = next(container for container in pod["initContainers"] if container["name"] == "engine")
    return engine


def api_of(pod: KubeObject) -> KubeObject:
    api: KubeObject = pod["containers"][0]
    return api


def mounts_of(container: KubeObject) -> dict[str, KubeObject]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


def env_of(container: KubeObject) -> dict[str, KubeObject]:
    return {variable["name"]: variable for variable in container["env"]}


def test_the_engine_is_a_native_sidecar_and_the_api_the_main_container(render_pod: RenderPod) -> None:
    pod = render_pod()
    assert [(container["name"], container["restartPolicy"]) for container in pod["initContainers"]] == [("engine", "Always")]
    assert [container["name"] for container in pod["containers"]] == ["api"]


def test_both_programs_read_their_arguments_back(render_pod: RenderPod) -> None:
    pod = render_pod(engine={"maxNumSeqs": 7}, api={"maxBodyBytes": 2048}, lifecycle={"drainTimeout": "7s"})
    engine = from_args(EngineConfig, engine_of(pod)["args"], program="stoker-engine")
    api = from_args(ApiConfig, api_of(pod)["args"], program="stoker-api")
    assert (engine.max_num_seqs, engine.lifecycle.drain_timeout, engine.health_port) == (7, "7s", 8001)
    assert (api.max_body_bytes, api.lifecycle.drain_timeout, api.port, api.model.served_name) == (2048, "7s", 8000, "demo")
    assert engine.socket_dir == api.socket_dir == SOCKETS_PATH


@pytest.mark.parametrize(
    ("accelerator", "device", "told"),
    [({}, "auto", "auto"), ({"count": 1}, "auto", "cuda"), ({"count": 1}, "cpu", "cpu"), ({"count": 1, "resourceName": "example.com/npu"}, "auto", "auto")],
)
def test_an_engine_that_was_given_gpus_is_told_to_use_them(render_pod: RenderPod, accelerator: dict[str, object], device: str, told: str) -> None:
    pod = render_pod(accelerator=accelerator, engine={"device": device})
    assert from_args(EngineConfig, engine_of(pod)["args"], program="stoker-engine").device == told


def test_arguments_of_the_spec_come_after_the_generated_ones(render_pod: RenderPod) -> None:
    pod = render_pod(engine={"args": ["--a=1"]}, api={"args": ["--b", "2"]})
    assert engine_of(pod)["args"][-1:] == ["--a=1"]
    assert api_of(pod)["args"][-2:] == ["--b", "2"]


def test_the_images_are_the_spec_s_or_the_operator_s(render_pod: RenderPod) -> None:
    pod = render_pod(engine={"image": "mine:2", "imagePullPolicy": "Never"})
    assert (engine_of(pod)["image"], engine_of(pod)["imagePullPolicy"]) == ("mine:2", "Never")
    assert (api_of(pod)["image"], api_of(pod)["imagePullPolicy"]) == ("stoker-api:1", "IfNotPresent")


@given(pre_stop=DURATIONS, drain=DURATIONS)
def test_the_grace_period_covers_delay_drain_and_the_end_for_any_values(make_deployment: MakeDeployment, defaults: Defaults, pre_stop: str, drain: str) -> None:
    deployment = make_deployment(lifecycle={"preStopDelay": pre_stop, "drainTimeout": drain})
    pod = pod_template(deployment, defaults)["spec"]
    grace = pod["terminationGracePeriodSeconds"]
    asked = seconds(pre_stop) + seconds(drain) + 15
    sleep = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert sleep + seconds(drain) + 15 <= grace + 1e-9 < asked + 2
    if "ms" not in pre_stop + drain:
        assert grace == asked


def test_a_grace_period_of_the_user_wins(render_pod: RenderPod) -> None:
    assert render_pod(podTemplate={"spec": {"terminationGracePeriodSeconds": 900}})["terminationGracePeriodSeconds"] == 900


def test_the_delay_before_the_drain_is_the_api_s_alone(render_pod: RenderPod) -> None:
    pod = render_pod(lifecycle={"preStopDelay": "1500ms"})
    assert api_of(pod)["lifecycle"] == {"preStop": {"sleep": {"seconds": 2}}}
    assert "lifecycle" not in engine_of(pod)


def test_no_delay_is_no_hook(render_pod: RenderPod) -> None:
    assert "lifecycle" not in api_of(render_pod(lifecycle={"preStopDelay": "0s"}))


def test_only_the_api_has_a_startup_probe_and_no_probe_waits_before_it_begins(render_pod: RenderPod) -> None:
    pod = render_pod(lifecycle={"startupTimeout": "25m"})
    probes = [{name: probe for name, probe in container.items() if name.endswith("Probe")} for container in (engine_of(pod), api_of(pod))]
    assert [sorted(found) for found in probes] == [["livenessProbe", "readinessProbe"], ["livenessProbe", "readinessProbe", "startupProbe"]]
    assert not [probe for found in probes for probe in found.values() if "initialDelaySeconds" in probe]
    startup = probes[1]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 25 * 60 + 60


def test_what_a_probe_kills_does_not_wait_out_the_drain(render_pod: RenderPod) -> None:
    pod = render_pod(lifecycle={"drainTimeout": "1h"})
    killers = [engine_of(pod)["livenessProbe"], api_of(pod)["livenessProbe"], api_of(pod)["startupProbe"]]
    assert [probe["terminationGracePeriodSeconds"] for probe in killers] == [10, 10, 10]


def test_a_reading_of_a_failed_probe_takes_less_than_5_seconds(render_pod: RenderPod) -> None:
    for container in (engine_of(render_pod()), api_of(render_pod())):
        probe = container["readinessProbe"]
        assert probe["failureThreshold"] * max(probe["periodSeconds"], probe["timeoutSeconds"]) < 5


def test_probes_ask_at_ports_that_the_container_names(render_pod: RenderPod) -> None:
    for container in (engine_of(render_pod()), api_of(render_pod())):
        (port,) = container["ports"]
        assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {port["name"]}


@pytest.mark.parametrize("uri", ["package://a/b.gguf", "file:///models/a"])
def test_a_model_that_is_there_needs_no_cache_volume(render_pod: RenderPod, uri: str) -> None:
    assert [volume["name"] for volume in render_pod(uri=uri)["volumes"]] == ["sockets", "tmp"]


@pytest.mark.parametrize(
    ("cache", "source"),
    [
        ({}, {"emptyDir": {}}),
        ({"sizeLimit": "8Gi"}, {"emptyDir": {"sizeLimit": "8Gi"}}),
        ({"type": "PersistentVolumeClaim", "claimName": "weights"}, {"persistentVolumeClaim": {"claimName": "weights"}}),
        ({"type": "HostPath", "hostPath": "/data"}, {"hostPath": {"path": "/data", "type": "DirectoryOrCreate"}}),
    ],
)
def test_a_downloaded_model_lives_in_the_cache_that_both_containers_see(render_pod: RenderPod, cache: KubeObject, source: KubeObject) -> None:
    pod = render_pod(uri="hf://org/name", cache=cache)
    assert {"name": "model-cache", **source} in pod["volumes"]
    for container in (engine_of(pod), api_of(pod)):
        assert mounts_of(container)["/var/cache/stoker"]["name"] == "model-cache"
        assert "--model-cache-dir=/var/cache/stoker" in container["args"]


def test_a_claim_with_a_model_is_read_only_in_both_containers(render_pod: RenderPod) -> None:
    pod = render_pod(uri="pvc://weights/org/name")
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}} in pod["volumes"]
    for container in (engine_of(pod), api_of(pod)):
        assert mounts_of(container)["/models"] == {"name": "model", "mountPath": "/models", "readOnly": True}
        assert "--model-uri=file:///models/org/name" in container["args"]


def test_the_api_alone_sees_its_keys_as_a_secret_that_may_change(render_pod: RenderPod) -> None:
    pod = render_pod(api={"apiKeysSecretRef": {"name": "clients"}})
    source = {"secretName": "clients", "defaultMode": 0o440, "items": [{"key": "keys", "path": "keys"}]}
    assert {"name": "api-keys", "secret": source} in pod["volumes"]
    assert mounts_of(api_of(pod))["/etc/stoker/api-keys"] == {"name": "api-keys", "mountPath": "/etc/stoker/api-keys", "readOnly": True}
    assert "--api-keys-file=/etc/stoker/api-keys/keys" in api_of(pod)["args"]
    assert "/etc/stoker/api-keys" not in mounts_of(engine_of(pod))


@pytest.mark.parametrize("size", ["auto", "0", 0])
def test_shared_memory_is_the_runtime_s_unless_a_size_is_asked_for(render_pod: RenderPod, size: str | int) -> None:
    assert "/dev/shm" not in mounts_of(engine_of(render_pod(sharedMemory={"sizeLimit": size})))


def test_shared_memory_of_a_size_is_the_engine_s(render_pod: RenderPod) -> None:
    pod = render_pod(sharedMemory={"sizeLimit": "2Gi"})
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in pod["volumes"]
    assert mounts_of(engine_of(pod))["/dev/shm"]["name"] == "shm"
    assert "/dev/shm" not in mounts_of(api_of(pod))


def test_accelerators_are_limits_of_the_engine(render_pod: RenderPod) -> None:
    pod = render_pod(accelerator={"count": 2}, engine={"resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi"}}})
    assert engine_of(pod)["resources"] == {"requests": {"cpu": 4}, "limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}}
    assert api_of(pod)["resources"] == {}


def test_accelerators_may_come_from_a_claim_template(render_pod: RenderPod) -> None:
    pod = render_pod(accelerator={"count": 2, "resourceClaimTemplateName": "two-gpus"})
    assert pod["resourceClaims"] == [{"name": "accelerator", "resourceClaimTemplateName": "two-gpus"}]
    assert engine_of(pod)["resources"] == {"claims": [{"name": "accelerator"}]}


def test_a_product_is_a_node_affinity_by_the_label_of_the_resource_s_domain(render_pod: RenderPod) -> None:
    pod = render_pod(accelerator={"resourceName": "amd.com/gpu", "count": 1, "product": ["A", "B"]})
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "amd.com/gpu.product", "operator": "In", "values": ["A", "B"]}]}


def test_a_variable_of_the_spec_stands_in_place_of_ours_and_each_name_is_there_once(render_pod: RenderPod) -> None:
    extra = [{"name": "POD_IP", "value": "::1"}, {"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "EMPTY", "value": ""}]
    container = engine_of(render_pod(engine={"env": extra}))
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    env = env_of(container)
    assert (env["POD_IP"], env["A"], env["EMPTY"]) == ({"name": "POD_IP", "value": "::1"}, {"name": "A", "value": "2"}, {"name": "EMPTY"})


def test_credentials_are_the_token_of_a_secret(render_pod: RenderPod) -> None:
    pod = render_pod(uri="hf://org/name", model={"credentialsSecretRef": {"name": "hub"}})
    for container in (engine_of(pod), api_of(pod)):
        assert env_of(container)["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_a_restart_changes_the_pods(make_deployment: MakeDeployment, defaults: Defaults) -> None:
    template = pod_template(make_deployment(restartedAt="today"), defaults)
    assert template["metadata"]["annotations"] == {"stoker.dev/restarted-at": "today"}


def test_labels_of_the_user_are_added_but_the_selecting_one_stays(make_deployment: MakeDeployment, defaults: Defaults) -> None:
    labels = {"team": "a", "app.kubernetes.io/name": "mine", "stoker.dev/inference-deployment": "other"}
    found = pod_template(make_deployment(podTemplate={"metadata": {"labels": labels}}), defaults)["metadata"]["labels"]
    assert (found["team"], found["app.kubernetes.io/name"], found["stoker.dev/inference-deployment"]) == ("a", "mine", "demo")


def test_socket_paths_are_at_most_80_characters_whatever_the_names(render_pod: RenderPod) -> None:
    pod = render_pod(name="a" * 52, uri="hf://" + "o" * 90 + "/" + "m" * 90)
    directory = from_args(EngineConfig, engine_of(pod)["args"], program="stoker-engine").socket_dir
    assert len(f"{directory}/handshake.sock") <= 80


def test_a_pod_gets_no_token_and_no_service_links(render_pod: RenderPod) -> None:
    pod = render_pod()
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"], pod["serviceAccountName"]) == (False, False, "demo")
