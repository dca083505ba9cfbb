"""Why an InferenceDeployment is Ready or not: Ready's reasons, complete."""

import enum


class Reason(enum.StrEnum):
    """In this order, the first that holds is told: what nobody but the user can mend comes before what may mend itself."""

    INVALID_SPEC = "InvalidSpec"
    ADMISSION_REJECTED = "AdmissionRejected"
    QUOTA_EXCEEDED = "QuotaExceeded"
    MISSING_REFERENCE = "MissingReference"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    INSUFFICIENT_ACCELERATORS = "InsufficientAccelerators"
    UNSCHEDULABLE = "Unschedulable"
    OOM_KILLED = "OOMKilled"
    ENGINE_HUNG = "EngineHung"
    STARTUP_TIMEOUT = "StartupTimeout"
    ENGINE_CRASHED = "EngineCrashed"
    API_CRASHED = "ApiCrashed"
    PAUSED = "Paused"
    MODEL_LOADING = "ModelLoading"
    ROLLING_OUT = "RollingOut"
    SCALED_TO_ZERO = "ScaledToZero"
    ALL_REPLICAS_READY = "AllReplicasReady"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def is_failure(self) -> bool:
        """It does not pass by waiting alone, or nobody can know that it does."""
        return self.rank < _RANKS[Reason.PAUSED]


_RANKS = {reason: rank for rank, reason in enumerate(Reason)}
