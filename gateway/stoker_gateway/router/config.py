"""GatewayConfig: the gateway's settings, written once. Flags and the chart's values are computed from these structs."""

from typing import Annotated

from msgspec import Meta

from stoker_engine.config import Duration, DurationBounds, LogFormatSetting, LogLevelSetting
from stoker_engine.settings import Settings, to_the_end
from stoker_gateway.http.urls import Endpoint, Origin

Namespace = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), max_length=63)]

SecretPlace = Annotated[str, Meta(pattern=to_the_end(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"), max_length=317)]


class GatewaySettings(Settings, frozen=True, kw_only=True):
    """How the gateway serves."""

    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30, description="Largest request body; a longer one is answered with 413.")] = 32 * 1024 * 1024
    max_body_memory: Annotated[
        int,
        Meta(
            ge=2048,
            le=1 << 40,
            description="Bytes of bodies that are held together, each until a replica has begun its answer; one that finds no room waits 5 s, then is 503.",
        ),
    ] = 256 * 1024 * 1024
    drain_delay: Annotated[
        Duration,
        Meta(
            description="From a request to stop to the drain: what routes to this gateway learns meanwhile that it is not ready, and new requests are served.",
            extra={"bounds": DurationBounds(may_be_zero=True)},
        ),
    ] = "5s"
    drain_timeout: Annotated[
        Duration,
        Meta(description="How long requests in flight may go on once the drain begins; 0s aborts at once.", extra={"bounds": DurationBounds(may_be_zero=True)}),
    ] = "120s"
    cors_allow_origins: Annotated[
        tuple[Origin, ...],
        Meta(max_length=64, description="Origins whose web pages may call the gateway from a browser; * is any. Default: none but the gateway's own."),
    ] = ()
    otlp_endpoint: Annotated[
        Endpoint | None, Meta(description="OpenTelemetry collector that gets one span per POST by OTLP over HTTP. Default: none are made.")
    ] = None
    log_level: LogLevelSetting = "info"
    log_format: LogFormatSetting = "text"


class GatewayConfig(GatewaySettings, frozen=True, kw_only=True):
    """All that one gateway process is told: its flags."""

    static_models: Annotated[
        tuple[str, ...],
        Meta(
            description="A model with replicas at fixed addresses, as name=host:port,host:port or as JSON; may be given several times. Default: the "
            "InferenceDeployments of the cluster that this program runs in, or that the kubeconfig names.",
            extra={"flag": "static-model"},
        ),
    ] = ()
    namespaces: Annotated[
        tuple[Namespace, ...],
        Meta(description="Namespace whose InferenceDeployments are served; repeatable. Default: the whole cluster.", extra={"flag": "namespace"}),
    ] = ()
    resync: Annotated[
        Duration,
        Meta(description="How often everything is listed anew: so old a lost change of the cluster can get.", extra={"bounds": DurationBounds()}),
    ] = "15s"
    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "0.0.0.0"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8080
    api_keys_file: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        Meta(
            description="File with the keys that clients may use, their budgets and priorities; it is read again when it changes. Default: no key is asked for."
        ),
    ] = None
    api_keys_secret: Annotated[
        SecretPlace | None,
        Meta(description="Secret that --api-keys-file is mounted from, as namespace/name: entries that are of no use become an Event there."),
    ] = None
    termination_message_path: Annotated[str, Meta(description="File that gets one JSON line when the process ends.")] = "/dev/termination-log"
    supervisor_fd: Annotated[
        Annotated[int, Meta(ge=3)] | None, Meta(description="Inherited pipe whose end of file means that the supervisor is gone: the process stops.")
    ] = None
