"""The Deployment: the replicas' pod template, how many of them, and how a change reaches them."""

from dataclasses import dataclass

from stoker_operator import kube_object
from stoker_operator.cluster_kinds import DEPLOYMENT
from stoker_operator.kube_object import KubeObject
from stoker_operator.names import RENDERED_BY_ANNOTATION, TEMPLATE_INPUTS_ANNOTATION
from stoker_operator.pod_rules import progress_deadline_seconds
from stoker_operator.resources.child import annotate, build_child, mark_desired, selector_labels
from stoker_operator.resources.context import DeploymentStrategy, RenderContext
from stoker_operator.resources.pod_template import pod_template
from stoker_operator.resources.template_inputs import template_inputs
from stoker_operator.v1alpha1 import InferenceDeployment


@dataclass(frozen=True, slots=True)
class _Template:
    template: KubeObject
    rendered_by: str


def build_deployment(deployment: InferenceDeployment, context: RenderContext) -> KubeObject:
    spec = deployment.spec
    content = {
        "replicas": spec.replicas,
        "selector": {"matchLabels": selector_labels(deployment)},
        "minReadySeconds": spec.rollout.min_ready_seconds,
        "progressDeadlineSeconds": progress_deadline_seconds(deployment),
        "revisionHistoryLimit": spec.rollout.revision_history_limit,
        "strategy": _strategy(context.strategy),
        **({"paused": True} if spec.paused else {}),
    }
    inputs = template_inputs(deployment)
    made = _kept(context, inputs) or _Template(pod_template(deployment, context.defaults), context.rendered_by)
    # The template is no part of the hash of what is desired: a kept one is whatever is there.
    child = mark_desired(build_child(DEPLOYMENT, deployment, context.uid, {"spec": content}))
    marked = annotate(child, {TEMPLATE_INPUTS_ANNOTATION: inputs, RENDERED_BY_ANNOTATION: made.rendered_by})
    return {**marked, "spec": {**content, "template": made.template}}


def _kept(context: RenderContext, inputs: str) -> _Template | None:
    """The template that another operator, or one with other default images, made from the same spec; it stays until the spec changes."""
    if context.live is None:
        return None
    annotations = kube_object.annotations(context.live)
    rendered_by = annotations.get(RENDERED_BY_ANNOTATION)
    if annotations.get(TEMPLATE_INPUTS_ANNOTATION) != inputs or rendered_by is None or rendered_by == context.rendered_by:
        return None
    template: KubeObject = context.live["spec"]["template"]
    metadata = {name: value for name, value in (template.get("metadata") or {}).items() if value is not None}
    return _Template({**template, "metadata": metadata}, rendered_by)


def _strategy(strategy: DeploymentStrategy) -> KubeObject:
    if strategy.type == "Recreate":
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": strategy.max_surge, "maxUnavailable": strategy.max_unavailable}}
