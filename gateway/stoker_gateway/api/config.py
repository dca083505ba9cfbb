"""ApiConfig: the api's settings, written once. Flags, `spec.api` and error paths are computed from these structs."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.config import Duration, DurationBounds, LifecycleConfig, LogFormatSetting, LogLevelSetting, ModelCacheDir, ModelConfig
from stoker_engine.settings import Settings
from stoker_gateway.http.urls import Endpoint, Origin

ToolCallParser = Literal["auto", "none", "hermes", "llama3_json", "pythonic", "mistral", "mistral_v11", "deepseek_v3", "deepseek_v31", "harmony"]
ReasoningParser = Literal["auto", "none", "think", "mistral", "harmony"]


class ApiSettings(Settings, frozen=True, kw_only=True):
    """How the api serves (`spec.api`)."""

    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30, description="Largest request body; a longer one is answered with 413.")] = 32 * 1024 * 1024
    max_queued_requests: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(description="Most requests that may wait for their first token, each of n choices counted; more are answered with 429."),
    ] = 1024
    max_queued_prefill_tokens: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="Most prompt tokens of requests that wait for their first token; more are answered with 429.")
    ] = 4 * 1024 * 1024
    enable_engine_control: Annotated[
        bool, Meta(description="Serve /sleep, /wake_up, /pause, /resume, /reset_prefix_cache and their like: whoever reaches the api may then stop the model.")
    ] = False
    enable_playground: Annotated[bool, Meta(description="Serve a page to chat with the model at /.")] = True
    request_timeout: Annotated[
        Duration | None,
        Meta(
            description="How long a request may take; a longer one ends in the engine, too, and with 504. Default: no limit.",
            extra={"bounds": DurationBounds()},
        ),
    ] = None
    cors_allow_origins: Annotated[
        tuple[Origin, ...],
        Meta(max_length=64, description="Origins whose web pages may call the api from a browser; * is any. Default: none but the api's own."),
    ] = ()
    otlp_endpoint: Annotated[
        Endpoint | None, Meta(description="OpenTelemetry collector that gets one span per request by OTLP over HTTP. Default: none are made.")
    ] = None
    chat_template: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        Meta(description="File with a Jinja template that takes the place of the model's own, for chats with and without tools."),
    ] = None
    tool_call_parser: Annotated[
        ToolCallParser, Meta(description="How the model writes tool calls; auto asks the chat template, none reads no calls but those that are required.")
    ] = "auto"
    reasoning_parser: Annotated[
        ReasoningParser,
        Meta(description="How the model marks its reasoning: think is <think>, mistral [THINK]; auto asks the chat template, none shows it as content."),
    ] = "auto"
    log_level: LogLevelSetting = "info"
    log_format: LogFormatSetting = "text"


class ApiConfig(ApiSettings, frozen=True, kw_only=True):
    """All that one api process is told: its flags."""

    model: ModelConfig
    lifecycle: LifecycleConfig = LifecycleConfig()
    model_cache_dir: ModelCacheDir = None
    socket_dir: Annotated[str, Meta(min_length=1, max_length=64, description="Directory of the sockets shared with the engine.")] = "/run/stoker"
    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "0.0.0.0"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8000
    api_keys_file: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        Meta(description="File with the keys that clients may use, one a line; it is read again when it changes. Default: no key is asked for."),
    ] = None
    termination_message_path: Annotated[str, Meta(description="File that gets one JSON line when the process ends.")] = "/dev/termination-log"
    supervisor_fd: Annotated[
        Annotated[int, Meta(ge=3)] | None, Meta(description="Inherited pipe whose end of file means that the supervisor is gone: the process stops.")
    ] = None
