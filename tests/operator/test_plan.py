import sys
from typing import Any

import msgspec
import pytest

from stoker_engine.config import EngineConfig, EngineSettings, LifecycleConfig
from stoker_engine.settings import Settings, from_args, to_args
from stoker_gateway.api.config import ApiConfig, ApiSettings
from stoker_gateway.router.config import GatewayConfig
from stoker_gateway.router.static_model import parse_static_models
from stoker_gateway.router.traffic import TrafficConfig
from stoker_operator.gateway_api import EndpointPickerReference, GatewayApiConfig, InferencePoolConfig
from stoker_operator.plan import GatewayPlacement, Placement, api_config, engine_config, model_claim, plan_gateway, plan_replica, pod_model_uri
from stoker_operator.pod_spec_types import EnvVar, PodTemplate, Resources
from stoker_operator.references import expand
from stoker_operator.spec_sections import (
    AcceleratorConfig,
    AvailabilityConfig,
    CacheConfig,
    MonitoringConfig,
    NetworkConfig,
    RolloutConfig,
    SharedMemoryConfig,
)
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment, InferenceDeploymentSpec, ModelSpec, ObjectMeta

PLACEMENT = Placement(socket_dir="/tmp/stoker-7/0123abcd", host="127.0.0.1", port=8081, health_port=8082, supervisor_fd=9)
LOGGING: dict[str, Any] = {"log_level": "debug", "log_format": "json"}
EVERY_API_FIELD = ApiSpec(
    max_body_bytes=4096,
    max_queued_requests=7,
    max_queued_prefill_tokens=8192,
    enable_engine_control=True,
    enable_playground=False,
    request_timeout="5m",
    cors_allow_origins=("https://chat.example.org",),
    otlp_endpoint="http://collector:4318",
    chat_template="/templates/chat.jinja",
    tool_call_parser="hermes",
    reasoning_parser="think",
    **LOGGING,
)


@pytest.fixture
def every_field() -> InferenceDeployment:
    return InferenceDeployment(
        api_version="stoker.dev/v1alpha1",
        kind="InferenceDeployment",
        metadata=ObjectMeta(name="demo", namespace="team"),
        spec=InferenceDeploymentSpec(
            model=ModelSpec(uri="hf://org/demo", served_name="org/demo", revision="main", aliases=("a", "b")),
            replicas=2,
            engine=EngineSpec(
                dtype="float32",
                quantization="int8",
                device="cpu",
                max_model_len=1024,
                max_num_seqs=7,
                max_num_batched_tokens=4096,
                block_size=32,
                gpu_memory_utilization=0.5,
                kv_cache_memory_bytes=1 << 30,
                num_blocks_override=64,
                enable_prefix_caching=False,
                enable_chunked_prefill=False,
                scheduling_policy="priority",
                watermark=0.01,
                async_scheduling=True,
                max_concurrent_batches=3,
                max_logprobs=5,
                seed=2**63 - 1,
                load_format="dummy",
                num_threads=2,
                **LOGGING,
                image="registry.example/engine:1",
                image_pull_policy="Always",
                args=("--profile-dir=$(TRACES)/profile",),
                env=(EnvVar(name="EMPTY"), EnvVar(name="ROOT", value="/tmp"), EnvVar(name="TRACES", value="$(ROOT)$(EMPTY)")),
                resources=Resources(requests={"cpu": 2}, limits={"memory": "8Gi"}),
            ),
            api=EVERY_API_FIELD,
            lifecycle=LifecycleConfig(startup_timeout="10m", pre_stop_delay="7s", drain_timeout="1m30s", engine_hang_timeout="500ms"),
            accelerator=AcceleratorConfig(count=1, product=("A", "B")),
            cache=CacheConfig(size_limit="20Gi"),
            shared_memory=SharedMemoryConfig(size_limit=0),
            rollout=RolloutConfig(strategy="RollingUpdate", max_surge="50%", max_unavailable=0),
            availability=AvailabilityConfig(max_unavailable=None),
            network=NetworkConfig(policy="None"),
            monitoring=MonitoringConfig(pod_monitor=False),
            gateway_api=GatewayApiConfig(inference_pool=InferencePoolConfig(endpoint_picker_ref=EndpointPickerReference(name="picker"))),
            pod_template=PodTemplate(spec={"nodeSelector": {"disk": "ssd"}}),
            paused=True,
            restarted_at="today",
            traffic=TrafficConfig(load_balancing="SessionHash", session_header="X-Session-Id"),
        ),
    )


def differing(config: Settings) -> set[str]:
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(config))}
    return {name for name in config.__struct_fields__ if getattr(config, name) != defaults[name]}


def test_the_fixture_sets_every_setting_to_something_else(every_field: InferenceDeployment) -> None:
    spec = every_field.spec
    assert differing(engine_config(every_field)) >= set(EngineSettings.__struct_fields__) | {"model", "lifecycle"}
    assert differing(spec) == set(InferenceDeploymentSpec.__struct_fields__)
    assert differing(spec.api) == set(ApiSettings.__struct_fields__)
    assert differing(spec.lifecycle) == set(LifecycleConfig.__struct_fields__)


def test_every_field_survives_the_arguments_and_the_file(every_field: InferenceDeployment) -> None:
    engine, api = engine_config(every_field), api_config(every_field)
    assert from_args(EngineConfig, to_args(engine), program="stoker-engine") == engine
    assert from_args(ApiConfig, to_args(api), program="stoker-api") == api
    assert msgspec.convert(msgspec.to_builtins(every_field), InferenceDeployment) == every_field


def test_the_processes_get_a_pods_arguments_and_their_placement(every_field: InferenceDeployment) -> None:
    plan = plan_replica(every_field, 1, PLACEMENT)
    local = ["--socket-dir=/tmp/stoker-7/0123abcd", "--supervisor-fd=9"]
    health = ["--health-host=127.0.0.1", "--health-port=8082"]
    engine = {*to_args(engine_config(every_field)), *local, *health, "--termination-message-path=/tmp/stoker-7/0123abcd/engine.termination"}
    api = {*to_args(api_config(every_field)), *local, "--termination-message-path=/tmp/stoker-7/0123abcd/api.termination"}
    engine.remove("--health-port=8001")
    engine.add("--profile-dir=/tmp/profile")
    assert plan.engine.command[:4] == (sys.executable, "-P", "-m", "stoker_engine")
    assert set(plan.engine.command[4:]) == engine
    assert plan.api.command[:4] == (sys.executable, "-P", "-m", "stoker_gateway.api")
    assert set(plan.api.command[4:]) == api | {"--host=127.0.0.1", "--port=8081"}


def test_the_processes_get_a_pods_environment(every_field: InferenceDeployment) -> None:
    plan = plan_replica(every_field, 0, PLACEMENT)
    assert (plan.engine.environment, plan.api.environment) == ({"EMPTY": "", "ROOT": "/tmp", "TRACES": "/tmp"}, {})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$(A)-$(A)", "1-1"), ("$(B)", "$(B)"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$A $", "$A $"), ("$(A", "$(A"), ("", "")],
)
def test_a_reference_is_replaced_as_in_a_pod(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


@pytest.mark.parametrize(
    ("uri", "inside", "claim"),
    [
        ("pvc://models/llama/8b", "file:///models/llama/8b", "models"),
        ("pvc://models/a.gguf", "file:///models/a.gguf", "models"),
        ("pvc://models/", "file:///models", "models"),
        ("pvc://models", "file:///models", "models"),
        ("hf://org/name", "hf://org/name", None),
        ("file:///a", "file:///a", None),
    ],
)
def test_a_claims_files_are_where_it_is_mounted(uri: str, inside: str, claim: str | None) -> None:
    assert (pod_model_uri(uri), model_claim(uri)) == (inside, claim)


@pytest.mark.fault("F6")
def test_the_grace_is_the_drain_timeout_and_fifteen_seconds(every_field: InferenceDeployment) -> None:
    assert plan_replica(every_field, 0, PLACEMENT).grace == 105.0


def test_a_model_without_a_served_name_is_served_under_the_deployments(every_field: InferenceDeployment) -> None:
    spec = msgspec.structs.replace(every_field.spec, model=ModelSpec(uri="file:///models/a"))
    deployment = msgspec.structs.replace(every_field, spec=spec)
    assert "--served-name=demo" in to_args(api_config(deployment))
    assert "--served-name=demo" in to_args(engine_config(deployment))


def test_a_replica_is_named_with_its_namespace_unless_that_is_the_default(every_field: InferenceDeployment) -> None:
    assert plan_replica(every_field, 1, PLACEMENT).name == "team/demo/1"
    deployment = msgspec.structs.replace(every_field, metadata=ObjectMeta(name="demo"))
    assert plan_replica(deployment, 0, PLACEMENT).name == "demo/0"


def test_the_gateway_knows_every_deployment_and_its_replicas_and_drains_as_long_as_the_longest(every_field: InferenceDeployment) -> None:
    other = InferenceDeployment(
        api_version="stoker.dev/v1alpha1",
        kind="InferenceDeployment",
        metadata=ObjectMeta(name="other"),
        spec=InferenceDeploymentSpec(
            model=ModelSpec(uri="file:///models/a"),
            replicas=0,
            api=ApiSpec(cors_allow_origins=("https://b.example",)),
            lifecycle=LifecycleConfig(drain_timeout="10s"),
        ),
    )
    placements = [Placement(f"/tmp/stoker-7/{index}", "0.0.0.0", 8081 + index, 8091 + index, 9) for index in range(2)]
    replicas = [plan_replica(every_field, index, placement) for index, placement in enumerate(placements)]
    plan = plan_gateway([every_field, other], replicas, GatewayPlacement("/tmp/stoker-7/gateway", "0.0.0.0", 8080, 9))
    assert (plan.url, plan.grace) == ("http://127.0.0.1:8080", 105.0)
    assert plan.program.command[:4] == (sys.executable, "-P", "-m", "stoker_gateway.router")
    config = from_args(GatewayConfig, plan.program.command[4:], program="stoker-gateway")
    first, second = parse_static_models(config.static_models)
    assert (first.namespace, first.name, first.served_name, first.aliases) == ("team", "demo", "org/demo", ("a", "b"))
    assert first.traffic == every_field.spec.traffic and second.traffic == TrafficConfig()
    assert first.endpoints == ("127.0.0.1:8081", "127.0.0.1:8082")
    assert (second.name, second.served_name, second.endpoints) == ("other", "other", ())
    assert config.max_body_bytes == 32 * 1024 * 1024 and config.max_body_memory == 256 * 1024 * 1024
    assert config.cors_allow_origins == ("https://chat.example.org", "https://b.example")
    assert (config.port, config.drain_delay, config.drain_timeout, config.supervisor_fd) == (8080, "0s", "1m30s", 9)
    assert (config.log_level, config.log_format) == ("debug", "json")


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8081"), ("0.0.0.0", "http://127.0.0.1:8081"), ("::", "http://[::1]:8081"), ("localhost", "http://localhost:8081")],
)
def test_a_wildcard_address_is_reached_by_loopback(every_field: InferenceDeployment, host: str, url: str) -> None:
    placement = Placement(socket_dir="/tmp/stoker-7/0123abcd", host=host, port=8081, health_port=8082, supervisor_fd=9)
    assert plan_replica(every_field, 0, placement).url == url
