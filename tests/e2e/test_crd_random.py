import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cluster.cluster import Cluster
from stoker_operator.crd import custom_resource_definition
from stoker_operator.errors import ManifestError
from stoker_operator.manifest import decode_manifests

NUM_SPECS = 400
SEED = 20260102

VALUES: dict[str, list[Any]] = {
    "model.uri": [
        "hf://a/b",
        "hf://a/b/c.gguf",
        "hf://a",
        "pvc://c/d",
        "pvc://c",
        "PVC://c/d",
        "s3://b/k",
        "oci://r/i",
        "package://p/f",
        "package:///f",
        "ftp://a",
    ],
    "model.servedName": ["a", "org/a", "", "-a", "a b", "a" * 253, "a" * 254],
    "model.aliases": [["a"], ["a", "a"], ["random"], ["b", "c"], [], [""]],
    "model.revision": ["main", "v1.0", "a/b", "", "-x", "a b"],
    "model.credentialsSecretRef": [{"name": "s"}, {"name": "S"}, {}],
    "replicas": [0, 1, 1000, 1001, -1, "1"],
    "engine.maxModelLen": [1, 2048, 2049, 0],
    "engine.enableChunkedPrefill": [True, False],
    "engine.maxNumBatchedTokens": [1, 4096, 1048577],
    "engine.args": [[], ["--dtype=auto"], ["--socket-dir=/x"], ["--host"], ["--health-host=a"], ["--hostile"], ["x--port=1"], ["--no-port"]],
    "engine.env": [[{"name": "A"}], [{"name": "A"}, {"name": "A"}], [{"name": "1"}], [{"name": "A", "value": "", "valueFrom": {}}], [{"value": "a"}]],
    "api.args": [["--port=1"], ["--ports=1"], ["--max-body-bytes=2048"], ["--supervisor-fd", "3"]],
    "api.requestTimeout": ["0s", "5m", "25h", "1"],
    "api.corsAllowOrigins": [["*"], ["https://a.example"], ["a.example"], ["https://a.example/"], [""]],
    "api.otlpEndpoint": ["http://a:4318", "https://a/x", "a:4318", "http://a:0", "http://a:99999"],
    "api.apiKeysSecretRef": [{"name": "s"}, {"name": "S"}, {}],
    "api.image": ["a", "a:1", "", "a b", " a"],
    "api.imagePullPolicy": ["Always", "always"],
    "api.resources": [{"limits": {"cpu": 1}}, {"limits": {"cpu": "500m"}}, {"limits": {"cpu": -1}}, {"limits": {"cpu": "-1"}}, {"requests": {"memory": "1gb"}}],
    "accelerator.count": [0, 1, 64, 65],
    "accelerator.product": [[], ["A"], ["A", "B"], [""], ["a b"]],
    "accelerator.resourceClaimTemplateName": ["a", "A", ""],
    "cache.type": ["EmptyDir", "PersistentVolumeClaim", "HostPath", "ImageVolume"],
    "cache.claimName": ["models", "Models", "a.b"],
    "cache.hostPath": ["/", "/a", "a", ""],
    "cache.sizeLimit": ["1Gi", 5, ".5Gi", "1e3", "1e", "Gi", -5],
    "sharedMemory.sizeLimit": ["auto", "Auto", 0, "0", "2Gi", -1],
    "lifecycle.startupTimeout": ["0s", "1ms", "24h", "24h1ms", "1m30s", "1.5m", "-1s", "s", ""],
    "lifecycle.drainTimeout": ["0s", "1ms", "999ms", "24h", "1440m1s", "86400000ms", "10s"],
    "lifecycle.preStopDelay": ["0s", "1ms", "24h", "25h"],
    "rollout.strategy": ["Auto", "RollingUpdate", "Recreate", "rollingUpdate"],
    "rollout.maxSurge": [0, 1, 1001, "0%", "25%", "100%", "101%", "00%", "1", -1],
    "rollout.maxUnavailable": [0, 1, "0%", "5%", "150%"],
    "rollout.minReadySeconds": [1, 2, 301, 3600, 3601],
    "rollout.progressDeadlineSeconds": [1, 3, 301, 604800, 604801],
    "availability.maxUnavailable": [0, "10%", "x"],
    "network.policy": ["Restricted", "None", "Open"],
    "monitoring.podMonitor": [True, "true"],
    "gatewayApi.httpRoute": [
        {"parentRefs": [{"name": "a"}]},
        {"parentRefs": []},
        {"parentRefs": [{"name": "a"}], "backend": "InferencePool"},
        {"parentRefs": [{"name": "a"}], "requestTimeout": "1d"},
        {"parentRefs": [{"name": "a", "sectionName": ""}], "hostnames": ["*"]},
    ],
    "gatewayApi.inferencePool": [{"endpointPickerRef": {"name": "e"}}, {"endpointPickerRef": {"name": "e", "port": 0}}, {}],
    "podTemplate.metadata.labels": [{"a": "b"}, {"stoker.dev/inference-deployment": "a"}, {"a": "b c"}],
    "podTemplate.spec": [
        {},
        {"terminationGracePeriodSeconds": 0},
        {"terminationGracePeriodSeconds": 125},
        {"terminationGracePeriodSeconds": 86400},
        {"any": 1},
    ],
    "paused": [True, 1],
    "restartedAt": ["", "now", 1],
}


def random_spec(source: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"model": {"uri": "file:///models/a"}}
    for path in source.sample(sorted(VALUES), source.randint(1, 4)):
        node = spec
        *sections, name = path.split(".")
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = source.choice(VALUES[path])
    return spec


def is_accepted_here(folder: Path, manifest: dict[str, Any]) -> bool:
    file = folder / "one.yaml"
    file.write_text(yaml.safe_dump(manifest))
    try:
        return bool(decode_manifests([str(file)]))
    except ManifestError:
        return False


def refused_by(cluster: Cluster, folder: Path, manifests: list[dict[str, Any]]) -> set[str]:
    """The names that the API server refuses: for kubectl each of a List is tried."""
    file = folder / "all.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": manifests}))
    with pytest.raises(RuntimeError) as caught:
        cluster.kubectl("create", "-f", str(file), "--dry-run=server", "--validate=false")
    return set(re.findall(r'InferenceDeployment(?:\.stoker\.dev)? "(random-\d+)" is invalid', str(caught.value)))


def test_random_specs_are_judged_alike_by_the_api_server_and_stoker_up(cluster: Cluster, tmp_path: Path) -> None:
    definition = custom_resource_definition()
    cluster.apply(definition)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}")
    source = random.Random(SEED)
    manifests = [
        {"apiVersion": "stoker.dev/v1alpha1", "kind": "InferenceDeployment", "metadata": {"name": f"random-{index}"}, "spec": random_spec(source)}
        for index in range(NUM_SPECS)
    ]
    refused = refused_by(cluster, tmp_path, manifests)
    judged_otherwise = [
        json.dumps(manifest["spec"]) for manifest in manifests if is_accepted_here(tmp_path, manifest) == (manifest["metadata"]["name"] in refused)
    ]
    assert judged_otherwise == []
    assert NUM_SPECS / 4 < len(refused) < NUM_SPECS
