"""What the operator reports of an InferenceDeployment (`status`)."""

from typing import Annotated, Literal

from msgspec import Meta

from stoker_engine.settings import Settings, to_the_end

MAX_CONDITIONS = 16

Count = Annotated[int, Meta(ge=0)]
Time = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
PodName = Annotated[str, Meta(max_length=253)]
Message = Annotated[str, Meta(max_length=1024)]
Seconds = Annotated[float, Meta(ge=0)]


class Condition(Settings, frozen=True, kw_only=True):
    """A `metav1.Condition`."""

    type: Annotated[str, Meta(min_length=1, max_length=316, description="What the condition is about, such as Ready.")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it holds.")]
    reason: Annotated[
        str, Meta(min_length=1, max_length=1024, pattern=to_the_end(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"), description="Why, in one CamelCase word.")
    ]
    message: Annotated[str, Meta(max_length=32768, description="Why, in a sentence.")]
    last_transition_time: Annotated[Time, Meta(description="When status last changed.")]
    observed_generation: Annotated[Count, Meta(description="The generation that the condition was computed for.")] = 0


class DownloadStatus(Settings, frozen=True, kw_only=True):
    """How far the download of the model's files is, on the pod that is furthest."""

    phase: Annotated[str, Meta(max_length=64, description="Downloading, Downloaded or Failed.")]
    bytes: Annotated[Count, Meta(description="Bytes that are there.")] = 0
    bytes_per_second: Annotated[Count | None, Meta(description="Over the last seconds.")] = None
    eta_seconds: Annotated[Count | None, Meta(description="Until the rest is there, at this rate.")] = None


class ModelStatus(Settings, frozen=True, kw_only=True):
    """The model that is served."""

    resolved_revision: Annotated[Annotated[str, Meta(max_length=128)] | None, Meta(description="The commit that revision stood for.")] = None
    size_bytes: Annotated[Count | None, Meta(description="Size of the model's files.")] = None
    download: Annotated[DownloadStatus | None, Meta(description="Where files are downloaded.")] = None


class StartupPhases(Settings, frozen=True, kw_only=True):
    """Seconds that the parts of a start took."""

    schedule: Annotated[Seconds | None, Meta(description="Until a node was found.")] = None
    pull: Annotated[Seconds | None, Meta(description="Until the engine's container ran.")] = None
    download: Annotated[Seconds | None, Meta(description="Until the model's files were there.")] = None
    load: Annotated[Seconds | None, Meta(description="Until the weights were in memory.")] = None
    warmup: Annotated[Seconds | None, Meta(description="Until the engine was READY.")] = None


class StartupStatus(Settings, frozen=True, kw_only=True):
    """The last start of a replica."""

    last_duration_seconds: Annotated[Seconds, Meta(description="From the pod's creation to its readiness.")]
    phases: Annotated[StartupPhases, Meta(description="Its parts, in seconds.")] = StartupPhases()


class LastFailure(Settings, frozen=True, kw_only=True):
    """The last end of a container that should not have been."""

    time: Annotated[Time, Meta(description="When it ended.")]
    pod: Annotated[PodName, Meta(description="The pod.")]
    container: Annotated[str, Meta(max_length=63, description="engine, api or another.")]
    reason: Annotated[str, Meta(max_length=128, description="Why: the program's own reason, else the kubelet's.")]
    exit_code: Annotated[int, Meta(ge=0, le=255, description="The process's exit code.")]
    message: Annotated[Message, Meta(description="The program's own last words.")] = ""


class LastDrain(Settings, frozen=True, kw_only=True):
    """What became of the requests of the last replica that was stopped."""

    time: Annotated[Time, Meta(description="When the api had ended.")]
    pod: Annotated[PodName, Meta(description="The pod.")]
    in_flight_at_start: Annotated[Count, Meta(description="Requests in flight when the drain began.")]
    completed: Annotated[Count, Meta(description="Of those, how many finished.")]
    aborted: Annotated[Count, Meta(description="Of those, how many were cut at the deadline.")]
    duration_seconds: Annotated[Seconds, Meta(description="How long the drain took.")]


class InferenceDeploymentStatus(Settings, frozen=True, kw_only=True):
    """What the operator reports."""

    observed_generation: Annotated[Count, Meta(description="The generation that the rest of the status was computed for.")] = 0
    replicas: Annotated[Count, Meta(description="Number of replicas that exist.")] = 0
    ready_replicas: Annotated[Count, Meta(description="Replicas that are ready.")] = 0
    updated_replicas: Annotated[Count, Meta(description="Replicas of the newest revision.")] = 0
    available_replicas: Annotated[Count, Meta(description="Replicas that have been ready for minReadySeconds.")] = 0
    unavailable_replicas: Annotated[Count, Meta(description="Wanted replicas that are not available.")] = 0
    selector: Annotated[str, Meta(max_length=1024, description="Label selector of the replicas' pods, for kubectl scale and the HPA.")] = ""
    url: Annotated[Annotated[str, Meta(max_length=512)] | None, Meta(description="The replicas' Service: the base of the OpenAI API's paths.")] = None
    model: Annotated[ModelStatus | None, Meta(description="The model that is served.")] = None
    startup: Annotated[StartupStatus | None, Meta(description="The last start of a replica.")] = None
    last_failure: Annotated[LastFailure | None, Meta(description="The last failure of a container.")] = None
    last_drain: Annotated[LastDrain | None, Meta(description="The last drain of a replica.")] = None
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=MAX_CONDITIONS, description="The state of the InferenceDeployment, sorted by type.")] = ()
