"""Rules between fields: each once, as CEL for the API server and as a predicate for `stoker up`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from stoker_engine.config import MAX_HOURS, LifecycleConfig
from stoker_engine.settings import Bounds, bounds_of
from stoker_operator.names import MAX_NAME_LENGTH
from stoker_operator.v1alpha1 import NAME_PATTERN, InferenceDeployment


@dataclass(frozen=True, slots=True)
class Rule:
    """`cel` stands on the schema node at `node`; a violation names `field` below it, or the node itself.

    A rule on an object that defaults to `{}` must hold for that too: the API server tries it before it fills the fields.
    """

    node: tuple[str, ...]
    field: str | None
    cel: str
    message: str
    holds: Callable[[InferenceDeployment], bool]

    @property
    def path(self) -> tuple[str, ...]:
        """What a violation names, from the root."""
        return (*self.node, *self.field.split(".")) if self.field else self.node


def _duration_rules() -> Iterator[Rule]:
    """The bounds that the flags have, too."""
    bounds = bounds_of(LifecycleConfig)
    for field in msgspec.structs.fields(LifecycleConfig):
        yield _duration_rule(field, bounds[field.encode_name])


def _duration_rule(field: msgspec.structs.FieldInfo, bounds: Bounds) -> Rule:
    at_most = f"duration(self) <= duration('{MAX_HOURS}h')"
    return Rule(
        node=("spec", "lifecycle", field.encode_name),
        field=None,
        cel=at_most if bounds.holds("0s") else f"duration(self) > duration('0s') && {at_most}",
        message=bounds.allowed,
        holds=lambda deployment: bounds.holds(getattr(deployment.spec.lifecycle, field.name)),
    )


def _model_length_fits(deployment: InferenceDeployment) -> bool:
    engine = deployment.spec.engine
    return engine.enable_chunked_prefill or engine.max_model_len is None or engine.max_model_len <= engine.max_num_batched_tokens


def _aliases_differ(deployment: InferenceDeployment) -> bool:
    aliases = deployment.spec.model.aliases
    return len(set(aliases)) == len(aliases)


NAME_RULE = Rule(
    node=(),
    field="metadata.name",
    cel=f"size(self.metadata.name) <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
    message=f"metadata.name must have at most {MAX_NAME_LENGTH} characters, lower-case letters, digits and '-', and begin with a letter; choose another name",
    holds=lambda deployment: len(deployment.metadata.name) <= MAX_NAME_LENGTH,
)

RULES: tuple[Rule, ...] = (
    NAME_RULE,
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
    Rule(
        node=("spec", "engine"),
        field="maxModelLen",
        cel="!has(self.maxModelLen) || self.enableChunkedPrefill || self.maxModelLen <= self.maxNumBatchedTokens",
        message="must be at most maxNumBatchedTokens while enableChunkedPrefill is false; raise maxNumBatchedTokens",
        holds=_model_length_fits,
    ),
    *_duration_rules(),
)
