"""Where a pod may run: the products that will do, accelerators by claim, and one replica per node where that is possible."""

from stoker_operator.kube_object import KubeObject
from stoker_operator.names import HOSTNAME_LABEL
from stoker_operator.resources.child import selector_labels
from stoker_operator.resources.containers import CLAIM
from stoker_operator.spec_sections import AcceleratorConfig
from stoker_operator.v1alpha1 import InferenceDeployment


def scheduling(deployment: InferenceDeployment) -> KubeObject:
    accelerator = deployment.spec.accelerator
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": HOSTNAME_LABEL,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector_labels(deployment)},
            }
        ],
        **_product_affinity(accelerator),
        **_resource_claims(accelerator),
    }


def product_label(resource_name: str) -> str:
    """The node label with the product of an accelerator, as device plugins' feature discovery writes it."""
    return f"{resource_name.partition('/')[0]}/gpu.product"


def _product_affinity(accelerator: AcceleratorConfig) -> KubeObject:
    if not accelerator.product:
        return {}
    expression = {"key": product_label(accelerator.resource_name), "operator": "In", "values": list(accelerator.product)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _resource_claims(accelerator: AcceleratorConfig) -> KubeObject:
    template = accelerator.resource_claim_template_name
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template}]} if template else {}
