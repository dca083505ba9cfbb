"""Rules about `spec.gatewayApi`."""

from stoker_operator.rule import Rule, spec_rule
from stoker_operator.v1alpha1 import InferenceDeployment


def _has_its_pool(deployment: InferenceDeployment) -> bool:
    route = deployment.spec.gateway_api.http_route
    return route is None or route.backend != "InferencePool" or deployment.spec.gateway_api.inference_pool is not None


GATEWAY_API_RULES: tuple[Rule, ...] = (
    spec_rule(
        "gatewayApi.httpRoute.backend",
        cel="!has(self.gatewayApi.httpRoute) || self.gatewayApi.httpRoute.backend != 'InferencePool' || has(self.gatewayApi.inferencePool)",
        message="must be Gateway unless gatewayApi.inferencePool is set: there is no pool to lead to",
        holds=_has_its_pool,
    ),
)
