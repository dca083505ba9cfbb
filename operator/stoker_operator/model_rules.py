"""Rules about `spec.model`."""

from stoker_engine.hub.address import SCHEME as HUB_SCHEME
from stoker_engine.model_files import is_on_hub
from stoker_operator.rule import Rule, spec_rule
from stoker_operator.v1alpha1 import InferenceDeployment

UNREADABLE_SCHEMES = ("s3://", "oci://")


def _aliases_differ(deployment: InferenceDeployment) -> bool:
    aliases = deployment.spec.model.aliases
    return len(set(aliases)) == len(aliases)


def _is_on_a_hub(deployment: InferenceDeployment) -> bool:
    return is_on_hub(deployment.spec.model.uri)


MODEL_RULES: tuple[Rule, ...] = (
    Rule(
        node=(),
        field="spec.model.aliases",
        cel="!has(self.spec.model.aliases) || "
        "!((has(self.spec.model.servedName) ? self.spec.model.servedName : self.metadata.name) in self.spec.model.aliases)",
        message="must not repeat the served name; remove it",
        holds=lambda deployment: deployment.served_name not in deployment.spec.model.aliases,
    ),
    Rule(
        node=("spec", "model"),
        field="aliases",
        cel="!has(self.aliases) || self.aliases.all(a, self.aliases.exists_one(b, b == a))",
        message="must differ from each other; remove the repeated one",
        holds=_aliases_differ,
    ),
    spec_rule(
        "model.uri",
        cel=" && ".join(f"!self.model.uri.startsWith('{scheme}')" for scheme in UNREADABLE_SCHEMES),
        message="must not be s3:// or oci://, which cannot be read; put the model on a hub (hf://), in a claim (pvc://) or in the image (file:///, package://)",
        holds=lambda deployment: not deployment.spec.model.uri.startswith(UNREADABLE_SCHEMES),
    ),
    spec_rule(
        "model.revision",
        cel=f"!has(self.model.revision) || self.model.uri.startsWith('{HUB_SCHEME}')",
        message=f"must be left out unless uri is {HUB_SCHEME}…: other models have no revisions",
        holds=lambda deployment: deployment.spec.model.revision is None or _is_on_a_hub(deployment),
    ),
    spec_rule(
        "model.credentialsSecretRef",
        cel=f"!has(self.model.credentialsSecretRef) || self.model.uri.startsWith('{HUB_SCHEME}')",
        message=f"must be left out unless uri is {HUB_SCHEME}…: other models are not downloaded",
        holds=lambda deployment: deployment.spec.model.credentials_secret_ref is None or _is_on_a_hub(deployment),
    ),
)
