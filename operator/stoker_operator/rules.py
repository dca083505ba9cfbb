"""All rules between fields: each once, as CEL for the API server and as a predicate for `stoker up`."""

from collections.abc import Iterator
from operator import attrgetter

import msgspec

from stoker_engine.config import MAX_HOURS, LifecycleConfig
from stoker_engine.settings import Bounds, Settings, bounds_of
from stoker_gateway.api.config import ApiSettings
from stoker_gateway.router.traffic import QueueConfig, TimeoutConfig
from stoker_operator.container_rules import CONTAINER_RULES
from stoker_operator.gateway_api_rules import GATEWAY_API_RULES
from stoker_operator.model_rules import MODEL_RULES
from stoker_operator.names import MAX_NAME_LENGTH
from stoker_operator.pod_rules import POD_RULES
from stoker_operator.rule import Rule, spec_rule
from stoker_operator.v1alpha1 import NAME_PATTERN, InferenceDeployment


def _duration_rules(section: str, settings: type[Settings]) -> Iterator[Rule]:
    """The bounds that the flags have, too. `section` is a path below the spec, such as `traffic.timeouts`."""
    bounds = bounds_of(settings)
    for field in msgspec.structs.fields(settings):
        if field.encode_name in bounds:
            yield _duration_rule(section, field, bounds[field.encode_name])


def _duration_rule(section: str, field: msgspec.structs.FieldInfo, bounds: Bounds) -> Rule:
    """One that is left out, where it may be, has no rule."""
    read = attrgetter(f"{section}.{field.name}")

    def holds(deployment: InferenceDeployment) -> bool:
        value = read(deployment.spec)
        return value is None or bounds.holds(value)

    at_most = f"duration(self) <= duration('{MAX_HOURS}h')"
    return Rule(
        node=("spec", *section.split("."), field.encode_name),
        field=None,
        cel=at_most if bounds.holds("0s") else f"duration(self) > duration('0s') && {at_most}",
        message=bounds.allowed,
        holds=holds,
    )


def _model_length_fits(deployment: InferenceDeployment) -> bool:
    engine = deployment.spec.engine
    return engine.enable_chunked_prefill or engine.max_model_len is None or engine.max_model_len <= engine.max_num_batched_tokens


NAME_RULE = Rule(
    node=(),
    field="metadata.name",
    cel=f"size(self.metadata.name) <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
    message=f"metadata.name must have at most {MAX_NAME_LENGTH} characters, lower-case letters, digits and '-', and begin with a letter; choose another name",
    holds=lambda deployment: len(deployment.metadata.name) <= MAX_NAME_LENGTH,
)

RULES: tuple[Rule, ...] = (
    NAME_RULE,
    *MODEL_RULES,
    Rule(
        node=("spec", "engine"),
        field="maxModelLen",
        cel="!has(self.maxModelLen) || self.enableChunkedPrefill || self.maxModelLen <= self.maxNumBatchedTokens",
        message="must be at most maxNumBatchedTokens while enableChunkedPrefill is false; raise maxNumBatchedTokens",
        holds=_model_length_fits,
    ),
    *CONTAINER_RULES,
    *_duration_rules("lifecycle", LifecycleConfig),
    *_duration_rules("api", ApiSettings),
    *_duration_rules("traffic.timeouts", TimeoutConfig),
    *_duration_rules("traffic.queue", QueueConfig),
    spec_rule(
        "traffic.sessionHeader",
        cel="has(self.traffic.sessionHeader) == (self.traffic.loadBalancing == 'SessionHash')",
        message="must be set if traffic.loadBalancing is SessionHash, and only then",
        holds=lambda deployment: (deployment.spec.traffic.session_header is not None) == (deployment.spec.traffic.load_balancing == "SessionHash"),
    ),
    *POD_RULES,
    *GATEWAY_API_RULES,
)
