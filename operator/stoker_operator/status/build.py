"""build_status: the whole status of one InferenceDeployment."""

from datetime import datetime

from stoker_operator.observed import Observed
from stoker_operator.status_types import InferenceDeploymentStatus
from stoker_operator.v1alpha1 import InferenceDeployment


def build_status(deployment: InferenceDeployment | None, observed: Observed, previous: InferenceDeploymentStatus, now: datetime) -> InferenceDeploymentStatus:
    """Equal input gives an equal status; a condition's lastTransitionTime changes with its status alone. `deployment` None: it could not be read."""
    return previous
