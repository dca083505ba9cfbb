"""OperatorConfig: the flags of `stoker operator`."""

from typing import Annotated

from msgspec import Meta

from stoker_engine.config import Duration, DurationBounds, LogFormatSetting, LogLevel
from stoker_engine.settings import Settings
from stoker_engine.version import __version__
from stoker_operator.names import SERVICE_PORT
from stoker_operator.pod_spec_types import ImageName, ObjectName, PullPolicy
from stoker_operator.v1alpha1 import Namespace


class OperatorConfig(Settings, frozen=True, kw_only=True):
    """What an operator watches, what it runs when a spec does not say, and how it is observed."""

    namespaces: Annotated[
        tuple[Namespace, ...],
        Meta(description="Namespace to watch; repeatable. Default: the whole cluster.", extra={"flag": "namespace"}),
    ] = ()
    engine_image: Annotated[ImageName, Meta(description="The engine's image where a spec names none.")] = f"stoker-engine:{__version__}"
    api_image: Annotated[ImageName, Meta(description="The api's image where a spec names none.")] = f"stoker-api:{__version__}"
    image_pull_policy: Annotated[PullPolicy, Meta(description="Pull policy of both where a spec says none.")] = "IfNotPresent"
    gateway_namespace: Annotated[
        Namespace | None, Meta(description="Namespace whose pods may reach the apis, besides their own. Default: the operator's own.")
    ] = None
    gateway_service: Annotated[ObjectName, Meta(description="The gateway's Service in that namespace, to which HTTPRoutes lead.")] = "stoker-gateway"
    gateway_service_port: Annotated[int, Meta(ge=1, le=65535, description="The port of that Service.")] = SERVICE_PORT
    resync: Annotated[Duration, Meta(description="How often everything is listed and looked at anew.", extra={"bounds": DurationBounds()})] = "60s"
    workers: Annotated[int, Meta(ge=1, le=256, description="InferenceDeployments that are worked on at a time.")] = 16
    lease_name: Annotated[ObjectName, Meta(description="Lease whose holder does the work.")] = "stoker-operator"
    lease_namespace: Annotated[Namespace | None, Meta(description="Namespace of the Lease. Default: the operator's own.")] = None
    health_host: Annotated[str, Meta(description="Address of /livez, /readyz and /metrics.")] = "0.0.0.0"
    health_port: Annotated[int, Meta(ge=0, le=65535, description="Port of /livez, /readyz and /metrics; 0 takes any.")] = 8080
    log_level: Annotated[LogLevel, Meta(description="Least important lines that are logged.")] = "info"
    log_format: LogFormatSetting = "text"
