from collections.abc import Callable
from typing import Any

import pytest

from stoker_operator.kube_object import KubeObject

RenderPod = Callable[..., KubeObject]

ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""Pod Security Standards, restricted."""


def violations(pod: KubeObject) -> list[str]:
    found = [f"volume {volume['name']}" for volume in pod["volumes"] if not (volume.keys() - {"name"}) <= ALLOWED_VOLUMES]
    found += [field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    for container in (*pod["initContainers"], *pod["containers"]):
        context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        rules = {
            "privileged": not context.get("privileged"),
            "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": context.get("runAsNonRoot") is True and context.get("runAsUser") != 0,
            "seccompProfile": context.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "capabilities": context.get("capabilities") == {"drop": ["ALL"]},
            "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
        }
        found += [f"{container['name']} {rule}" for rule, holds in rules.items() if not holds]
    return found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"uri": "hf://org/name", "cache": {"type": "PersistentVolumeClaim", "claimName": "a"}, "sharedMemory": {"sizeLimit": "1Gi"}},
        {"uri": "pvc://claim/path", "accelerator": {"count": 4, "product": ["A"]}},
    ],
)
def test_pods_pass_the_restricted_standard_with_a_read_only_root(render_pod: RenderPod, spec: dict[str, Any]) -> None:
    pod = render_pod(**spec)
    assert violations(pod) == []
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in (*pod["initContainers"], *pod["containers"]))


def test_both_containers_run_as_one_user_so_that_they_share_the_sockets(render_pod: RenderPod) -> None:
    pod = render_pod()
    assert [pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")] == [65532] * 3
    assert not [container for container in (*pod["initContainers"], *pod["containers"]) if "runAsUser" in container["securityContext"]]
