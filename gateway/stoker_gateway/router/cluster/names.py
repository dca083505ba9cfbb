"""Names that the gateway and the cluster must agree on: kinds, labels, ports."""

from dataclasses import dataclass

GROUP = "stoker.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "InferenceDeployment"

INFERENCE_DEPLOYMENT_LABEL = f"{GROUP}/inference-deployment"
"""On the Service of an InferenceDeployment, and so on its EndpointSlices: its name."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
HTTP_PORT_NAME = "http"
FIELD_MANAGER = "stoker-gateway"
"""Who the API server knows the gateways' fields by: all of them say the same, so that they are one."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind, as the paths of the API have it."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Of all in a namespace (None: in the cluster), of one object, or of a part of it."""
        parts = (*(("namespaces", namespace) if namespace else ()), self.plural, *filter(None, (name, subresource)))
        return "/".join((f"/apis/{self.group}/{self.version}", *parts))


INFERENCE_DEPLOYMENTS = Resource(GROUP, "v1alpha1", "inferencedeployments")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
EVENTS = Resource("events.k8s.io", "v1", "events")
