"""Rules about where a pod's parts come from, how it ends and how a change reaches it."""

from stoker_engine.config import seconds
from stoker_operator.names import INFERENCE_DEPLOYMENT_LABEL
from stoker_operator.pod_spec_types import IntOrPercent
from stoker_operator.rule import Rule, spec_rule
from stoker_operator.v1alpha1 import InferenceDeployment

PROGRESS_SECONDS = 300
"""How much longer than a start a rollout may go without progress, unless the spec says: for the node, the images, the api."""


def progress_deadline_seconds(deployment: InferenceDeployment) -> int:
    """`spec.rollout.progressDeadlineSeconds`, or what it is by default."""
    explicit = deployment.spec.rollout.progress_deadline_seconds
    return explicit if explicit is not None else int(seconds(deployment.spec.lifecycle.startup_timeout)) + PROGRESS_SECONDS


def _is_none(amount: IntOrPercent | None) -> bool:
    return amount in (0, "0%")


def _rolls_somehow(deployment: InferenceDeployment) -> bool:
    rollout = deployment.spec.rollout
    return not (_is_none(rollout.max_surge) and _is_none(rollout.max_unavailable))


def _grace_covers_the_drain(deployment: InferenceDeployment) -> bool:
    grace, lifecycle = deployment.spec.pod_template.spec.get("terminationGracePeriodSeconds"), deployment.spec.lifecycle
    if grace is None:
        return True
    return isinstance(grace, int) and grace >= seconds(lifecycle.pre_stop_delay) + seconds(lifecycle.drain_timeout)


def _accelerators_once(deployment: InferenceDeployment) -> bool:
    accelerator = deployment.spec.accelerator
    return accelerator.resource_claim_template_name is None or accelerator.count == 0


def _product_of_something(deployment: InferenceDeployment) -> bool:
    accelerator = deployment.spec.accelerator
    return not accelerator.product or accelerator.count > 0


CACHE_RULES: tuple[Rule, ...] = (
    Rule(
        node=("spec", "cache", "type"),
        field=None,
        cel="self == oldSelf",
        message="must stay as it is; delete the InferenceDeployment and create it anew",
        holds=lambda deployment: True,  # a file has no former self
    ),
    spec_rule(
        "cache.claimName",
        cel="has(self.cache.claimName) == (self.cache.type == 'PersistentVolumeClaim')",
        message="must be set if cache.type is PersistentVolumeClaim, and only then",
        holds=lambda deployment: (deployment.spec.cache.claim_name is not None) == (deployment.spec.cache.type == "PersistentVolumeClaim"),
    ),
    spec_rule(
        "cache.hostPath",
        cel="has(self.cache.hostPath) == (self.cache.type == 'HostPath')",
        message="must be set if cache.type is HostPath, and only then",
        holds=lambda deployment: (deployment.spec.cache.host_path is not None) == (deployment.spec.cache.type == "HostPath"),
    ),
    spec_rule(
        "cache.sizeLimit",
        cel="!has(self.cache.sizeLimit) || self.cache.type == 'EmptyDir'",
        message="must be left out unless cache.type is EmptyDir: the other types have a size of their own",
        holds=lambda deployment: deployment.spec.cache.size_limit is None or deployment.spec.cache.type == "EmptyDir",
    ),
)

ROLLOUT_RULES: tuple[Rule, ...] = (
    spec_rule(
        "rollout.maxSurge",
        cel="!has(self.rollout.maxSurge) || self.rollout.strategy == 'RollingUpdate'",
        message="must be left out unless rollout.strategy is RollingUpdate; set that or remove maxSurge",
        holds=lambda deployment: deployment.spec.rollout.max_surge is None or deployment.spec.rollout.strategy == "RollingUpdate",
    ),
    spec_rule(
        "rollout.maxUnavailable",
        cel="!has(self.rollout.maxUnavailable) || self.rollout.strategy == 'RollingUpdate'",
        message="must be left out unless rollout.strategy is RollingUpdate; set that or remove maxUnavailable",
        holds=lambda deployment: deployment.spec.rollout.max_unavailable is None or deployment.spec.rollout.strategy == "RollingUpdate",
    ),
    spec_rule(
        "rollout.maxUnavailable",
        cel="!has(self.rollout.maxSurge) || !has(self.rollout.maxUnavailable)"
        " || !((self.rollout.maxSurge == 0 || self.rollout.maxSurge == '0%') && (self.rollout.maxUnavailable == 0 || self.rollout.maxUnavailable == '0%'))",
        message="must not be 0 while maxSurge is 0, which leaves a rollout no way to begin; raise one of them",
        holds=_rolls_somehow,
    ),
    spec_rule(
        "rollout.minReadySeconds",
        cel="self.rollout.minReadySeconds < (has(self.rollout.progressDeadlineSeconds) ? self.rollout.progressDeadlineSeconds"
        f" : duration(self.lifecycle.startupTimeout).getSeconds() + {PROGRESS_SECONDS})",
        message=f"must be less than progressDeadlineSeconds, which is startupTimeout + {PROGRESS_SECONDS} s unless set; lower it or raise that",
        holds=lambda deployment: deployment.spec.rollout.min_ready_seconds < progress_deadline_seconds(deployment),
    ),
)

POD_RULES: tuple[Rule, ...] = (
    *CACHE_RULES,
    *ROLLOUT_RULES,
    spec_rule(
        "accelerator.resourceClaimTemplateName",
        cel="!has(self.accelerator.resourceClaimTemplateName) || self.accelerator.count == 0",
        message="must be left out while accelerator.count is more than 0; set count to 0, for the template says how many",
        holds=_accelerators_once,
    ),
    spec_rule(
        "accelerator.product",
        cel="size(self.accelerator.product) == 0 || self.accelerator.count > 0",
        message="must be left out while accelerator.count is 0; set count to the number that an engine needs",
        holds=_product_of_something,
    ),
    spec_rule(
        "podTemplate.metadata.labels",
        cel=f"!('{INFERENCE_DEPLOYMENT_LABEL}' in self.podTemplate.metadata.labels)",
        message=f"must not have {INFERENCE_DEPLOYMENT_LABEL}, by which the pods are found; remove it",
        holds=lambda deployment: INFERENCE_DEPLOYMENT_LABEL not in deployment.spec.pod_template.metadata.labels,
    ),
    spec_rule(
        "podTemplate.spec.terminationGracePeriodSeconds",
        # Rounded up: a duration from a number would need a string, which the API server counts as endless.
        cel="!has(self.podTemplate.spec.terminationGracePeriodSeconds) || self.podTemplate.spec.terminationGracePeriodSeconds"
        " >= (duration(self.lifecycle.preStopDelay) + duration(self.lifecycle.drainTimeout) + duration('999ms')).getSeconds()",
        message="must be at least preStopDelay + drainTimeout; raise it or remove it, which leaves enough",
        holds=_grace_covers_the_drain,
    ),
)
