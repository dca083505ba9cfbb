"""The section of an InferenceDeployment's spec that asks for objects of the Gateway API and of its inference extension."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end
from stoker_gateway.router.traffic import HeaderName
from stoker_operator.pod_spec_types import ObjectName

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

NamespaceName = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), max_length=63)]
SectionName = Annotated[str, Meta(pattern=to_the_end(f"^{_SUBDOMAIN}$"), max_length=253)]
Hostname = Annotated[str, Meta(pattern=to_the_end(rf"^(\*\.)?{_SUBDOMAIN}$"), max_length=253, examples=["chat.example.org", "*.example.org"])]
RouteDuration = Annotated[str, Meta(pattern=to_the_end(r"^(([0-9]{1,5}(h|m|s|ms)){1,4})?$"), max_length=32, examples=["0s", "10m"])]
"""A duration as an HTTPRoute may have it, or none."""
Port = Annotated[int, Meta(ge=1, le=65535)]

PICKER_PORT = 9002
"""Where the endpoint pickers of llm-d listen, unless their chart is told otherwise."""


class ParentReference(Settings, frozen=True, kw_only=True):
    """A Gateway that a route is attached to (`spec.gatewayApi.httpRoute.parentRefs[]`)."""

    name: Annotated[ObjectName, Meta(description="The Gateway's name.")]
    namespace: Annotated[NamespaceName | None, Meta(description="The Gateway's namespace. Default: this one.")] = None
    section_name: Annotated[SectionName | None, Meta(description="The listener's name. Default: every one that takes the route.")] = None
    port: Annotated[Port | None, Meta(description="The listener's port. Default: any.")] = None


class HttpRouteConfig(Settings, frozen=True, kw_only=True):
    """The way from a Gateway to the model (`spec.gatewayApi.httpRoute`)."""

    parent_refs: Annotated[tuple[ParentReference, ...], Meta(min_length=1, max_length=32, description="Gateways that the route is attached to.")]
    hostnames: Annotated[tuple[Hostname, ...], Meta(max_length=16, description="Hosts that the route is for. Default: those of the listener.")] = ()
    model_header: Annotated[
        HeaderName | None,
        Meta(description="Header with the model's name, as body-based routing sets it: only requests with one of this model's names match. Default: any."),
    ] = None
    backend: Annotated[
        Literal["Gateway", "InferencePool"],
        Meta(description="Gateway is Stoker's, which finds the replica by the model's name; InferencePool is that of this model, without Stoker's gateway."),
    ] = "Gateway"
    request_timeout: Annotated[
        RouteDuration, Meta(description="For a whole request, also while its answer streams; 0s is no limit, an empty text leaves it to the Gateway.")
    ] = "0s"


class EndpointPickerReference(Settings, frozen=True, kw_only=True):
    """Who chooses a replica of the pool (`spec.gatewayApi.inferencePool.endpointPickerRef`)."""

    name: Annotated[ObjectName, Meta(description="The picker's Service, in this namespace.")]
    port: Annotated[Port, Meta(description="The Service's port.")] = PICKER_PORT
    failure_mode: Annotated[
        Literal["FailClose", "FailOpen"],
        Meta(description="Without an answer of the picker, FailClose refuses requests and FailOpen sends them to any replica."),
    ] = "FailClose"


class InferencePoolConfig(Settings, frozen=True, kw_only=True):
    """The replicas as an inference gateway finds them (`spec.gatewayApi.inferencePool`)."""

    endpoint_picker_ref: Annotated[EndpointPickerReference, Meta(description="Who chooses a replica.")]


class GatewayApiConfig(Settings, frozen=True, kw_only=True):
    """Objects for other gateways, made where the cluster knows their kinds (`spec.gatewayApi`)."""

    http_route: Annotated[HttpRouteConfig | None, Meta(description="Make an HTTPRoute. Default: none.")] = None
    inference_pool: Annotated[InferencePoolConfig | None, Meta(description="Make an InferencePool of the replicas. Default: none.")] = None
